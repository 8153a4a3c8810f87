"""The scan: every score of every query, part by part of the gallery, exact wherever it decides.

Scores are computed in float32, in tiles. Those too near an edge of the tie band to be trusted, and
the best ones, are computed again in float64, so that no device changes a rank.
Shapes: Q queries, B of a block, R those of them still searched, C gallery rows of a tile, N parts,
A right answers, P uncertain scores, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vlcpctl.evaluation.search.index import BAND, ERROR, QueryAndGallery, exact_scores
from vlcpctl.evaluation.search.queries import Queries

_SCORES = 1 << 21  # of a tile: they take 8 MB, and stay in the cache of a CPU
_COLUMNS = 1024  # gallery rows of a tile; smaller parts share one
_GPU_SCORES = 1 << 26
_GPU_COLUMNS = (2048, 8192)  # least and most
_FEWEST = 256  # gallery rows of a tile, if a part ends there
_PASS = 8192  # queries for which the gallery is read once, if they are several blocks
_EQUAL = 1e-9  # copies of one embedding may differ in the last bits, by their place in a tile
_CROWD = 32  # with more uncertain scores in a tile, all of a query are computed again
_OPEN = 0.75  # share of queries still searched, below which the others are left out of the copy

_Tile = list[tuple[int, int, int]]  # the part, first row and end of what is in a tile


@dataclass(frozen=True)
class Scanned:
    """(N, Q) what the first 1, 2, ... N parts hold for each query.

    `worst` and `best` count the wrong answers that outrank its best right one if that loses its
    ties, and if it wins them. `wrong` is the gallery row of the best wrong answer, the first of
    equal ones or -1 without any, and `score` its score; both are empty if they were not asked for.
    """

    worst: np.ndarray
    best: np.ndarray
    wrong: np.ndarray
    score: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays, each with a column for each query, or none."""
        return self.worst, self.best, self.wrong, self.score

    @staticmethod
    def empty(queries: Queries, top: int | None) -> Scanned:
        """Nothing found; with `top`, counts end there and best wrong answers are not asked for."""
        shape, size = (len(queries.ends), len(queries.query_QD)), len(queries.gallery_GD)
        count, row = np.min_scalar_type(top or size), np.min_scalar_type(-1 - size)
        named = shape if top is None else (shape[0], 0)
        worst, best = (np.zeros(shape, count) for _ in range(2))
        return Scanned(worst, best, np.zeros(named, row), np.zeros(named))


@torch.inference_mode()
def scan(queries: Queries, device: str, top: int | None = None) -> Scanned:
    """Scan the gallery, part by part.

    With `top`, counts end there, and the best wrong answers are not looked for. `device` is auto,
    cpu or cuda.
    """
    place = device_of(device)
    rows, columns = _tile_shape(queries.ends, place)
    found, is_collapsed, count = Scanned.empty(queries, top), False, len(queries.query_QD)
    some = max(rows, _PASS // rows * rows)
    for begin in range(0, count, some):
        starts = range(begin, min(begin + some, count), rows)
        owns = [slice(start, min(start + rows, count)) for start in starts]
        blocks = [_Block(queries, own, place, top, is_collapsed) for own in owns]
        for tile in tiles(queries.ends, columns):
            gallery_CD = torch.from_numpy(queries.gallery_GD[tile[0][1] : tile[-1][2]]).to(place)
            for own, block in zip(owns, blocks, strict=True):
                for part in block.search(tile, gallery_CD):
                    block.write(found, own, part)
        is_collapsed = blocks[-1].is_collapsed
    return found


def _tile_shape(ends_N: np.ndarray, place: torch.device) -> tuple[int, int]:
    """The most queries and gallery rows of a tile."""
    if place.type == "cpu":
        return _SCORES // _COLUMNS, _COLUMNS
    columns = int(np.clip(np.diff(ends_N, prepend=0).max(), *_GPU_COLUMNS))
    return _GPU_SCORES // columns, columns


def device_of(device: str) -> torch.device:
    """Where to compute, given auto, cpu or cuda."""
    has_gpu = device != "cpu" and torch.cuda.is_available()
    return torch.device(("cuda" if device == "auto" else device) if has_gpu else "cpu")


def product(query_RD: Tensor, gallery_CD: Tensor) -> Tensor:
    """(R, C) inner products."""
    if query_RD.device.type == "cpu":  # NumPy was 1.2 times as fast as torch
        return torch.from_numpy(query_RD.numpy() @ gallery_CD.numpy().T)
    arithmetic = torch.backends.cuda.matmul
    was_allowed, arithmetic.allow_tf32 = arithmetic.allow_tf32, False  # as for training: too coarse
    try:
        return query_RD @ gallery_CD.T
    finally:
        arithmetic.allow_tf32 = was_allowed


def tiles(ends_N: np.ndarray, most: int) -> Iterator[_Tile]:
    """The gallery in tiles of up to `most` rows.

    Small parts share one, but not with more rows than come before: those may end a search.
    """
    tile: _Tile = []
    start = 0
    for part, end in enumerate(ends_N.tolist()):
        for stop in [*range(start + most, end, most), end]:
            if tile and stop - tile[0][1] > min(most, max(_FEWEST, tile[0][1])):
                yield tile
                tile = []
            tile.append((part, start, stop))
            start = stop
    yield tile


class _Block:
    """Some queries, and what the gallery rows so far hold for each."""

    def __init__(
        self,
        queries: Queries,
        own: slice,
        device: torch.device,
        top: int | None,
        is_collapsed: bool,
    ) -> None:
        self.device, self.top = device, top
        query_BD = queries.query_QD[own]
        self.sides = QueryAndGallery(query_BD, queries.gallery_GD)
        self.right = queries.right.at(np.arange(own.start, own.stop))
        self.query_BD = self._here(query_BD)
        self.edge_B = self._here(queries.best_right[own])
        self.worst_B, self.best_B = torch.zeros((2, len(query_BD)), dtype=torch.int64).to(device)
        self.wrong_B = torch.full_like(self.worst_B, -1)
        self.score_B = torch.full_like(self.edge_B, -torch.inf)
        self.open_R = torch.arange(len(query_BD), device=device)
        self.query_RD = self.query_BD
        self.is_collapsed = is_collapsed  # most queries have a crowd: float32 decides too little

    def _here(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def write(self, found: Scanned, own: slice, part: int) -> None:
        """Write what was found up to a part."""
        if self.top is None:
            found.wrong[part, own] = self.wrong_B.cpu().numpy()
            found.score[part, own] = self.score_B.cpu().numpy()
        limit = self.top or len(self.sides.gallery_GD)
        found.worst[part, own] = self.worst_B.clamp(max=limit).cpu().numpy()
        found.best[part, own] = self.best_B.clamp(max=limit).cpu().numpy()

    def search(self, tile: _Tile, gallery_CD: Tensor) -> Iterator[int]:
        """Take what is in a tile; give the part of each piece once it is taken."""
        first, end = tile[0][1], tile[-1][2]
        some_R, self.first, self.gallery_CD = self.open_R, first, gallery_CD
        if not self.is_collapsed:
            scores = self._scores(self.query_RD, some_R, first, end)
            if self.top is not None and len(tile) > 1:  # most queries have none that counts
                touched = _places(scores.amax(dim=1) >= self.edge_B[some_R] - (BAND + ERROR))
                scores, some_R = scores[touched], some_R[touched]
        for part, start, stop in tile:
            if self.is_collapsed and stop > start:
                self._take_all(self.open_R, start, stop)
            elif stop > start and len(some_R):
                self._take(some_R, scores[:, start - first : stop - first], start)
            yield part
        if self.top is not None:  # queries with `top` wrong answers before all right ones are done
            is_open = self.best_B[self.open_R] < self.top
            if is_open.sum() < _OPEN * len(is_open):
                self.open_R = self.open_R[is_open]
                self.query_RD = self.query_BD[self.open_R]

    def _scores(self, query_RD: Tensor, some_R: Tensor, first: int, end: int) -> Tensor:
        gallery_CD = self.gallery_CD[first - self.first : end - self.first]
        scores = product(query_RD, gallery_CD.to(query_RD.dtype))
        is_here = (self.right.ids >= first) & (self.right.ids < end)
        place_B = torch.full_like(self.wrong_B, -1)
        place_B[some_R] = torch.arange(len(some_R), device=self.device)
        row = place_B[self._here(self.right.owners[is_here])]
        column = self._here(self.right.ids[is_here] - first)
        scores[row[row >= 0], column[row >= 0]] = -torch.inf
        return scores

    def _take(self, some_R: Tensor, scores: Tensor, first: int) -> None:
        """Count wrong answers in float32 scores (R, C) of gallery rows from `first` on."""
        highest, edge_R = scores.amax(dim=1), self.edge_B[some_R]
        touched = _places(highest >= edge_R - (BAND + ERROR))
        rising = _places(highest > self.score_B[some_R] - ERROR)
        rising = rising if self.top is None else rising[:0]
        if not len(touched) and not len(rising):
            return
        rows, edge, least = some_R[touched], edge_R[touched], highest[rising] - _EQUAL
        above, near = _reach(_rows(scores, touched), edge - BAND - ERROR, edge + BAND + ERROR)
        _, high = _reach(_rows(scores, rising), least - 2 * ERROR, torch.full_like(least, 2))
        in_crowd = torch.zeros_like(some_R, dtype=torch.bool)
        for places, (row_P, _) in ((touched, near), (rising, high)):
            in_crowd[places] |= row_P.bincount(minlength=len(places)) > _CROWD
        if in_crowd.any():
            self.is_collapsed = bool(in_crowd.sum() > len(self.open_R) / 2)
            self._take_all(some_R[in_crowd], first, first + scores.shape[1])
            if not in_crowd.all():
                self._take(some_R[~in_crowd], scores[~in_crowd], first)
            return
        row_P = rows[near[0]]
        exact, edge_P = self._exact(row_P, near[1] + first), edge[near[0]]
        for count_B, bound_P in ((self.worst_B, edge_P - BAND), (self.best_B, edge_P + BAND)):
            count_B[rows] += above
            count_B.index_add_(0, row_P, (exact >= bound_P).long())
        if len(rising):
            self._rise(some_R[rising], high[0], high[1] + first)

    def _rise(self, some_R: Tensor, row_P: Tensor, wrong_P: Tensor) -> None:
        """Note the best of wrong answers, given the place of each one's query in `some_R`."""
        exact = self._exact(some_R[row_P], wrong_P)
        score = torch.full((len(some_R),), -torch.inf, dtype=exact.dtype, device=self.device)
        score = score.scatter_reduce(0, row_P, exact, "amax")
        is_best = exact >= score[row_P] - _EQUAL
        wrong = torch.full_like(some_R, len(self.sides.gallery_GD))
        wrong = wrong.scatter_reduce(0, row_P[is_best], wrong_P[is_best], "amin")
        self._note(some_R, score, wrong)

    def _take_all(self, some_R: Tensor, first: int, end: int) -> None:
        """Do what `_take` does with all scores in float64."""
        scores = self._scores(self.query_BD[some_R].double(), some_R, first, end)
        edge = self.edge_B[some_R, None]
        self.worst_B[some_R] += (scores >= edge - BAND).sum(dim=1)
        self.best_B[some_R] += (scores >= edge + BAND).sum(dim=1)
        if self.top is None:
            highest = scores.amax(dim=1)
            nearest = (scores >= highest[:, None] - _EQUAL).to(torch.uint8).argmax(dim=1)
            self._note(some_R, highest, nearest + first)

    def _note(self, some_R: Tensor, score_R: Tensor, wrong_R: Tensor) -> None:
        is_better = score_R > self.score_B[some_R] + _EQUAL
        some = some_R[is_better]
        self.score_B[some], self.wrong_B[some] = score_R[is_better], wrong_R[is_better]

    def _exact(self, row_P: Tensor, column_P: Tensor) -> Tensor:
        rows, columns = row_P.cpu().numpy(), column_P.cpu().numpy()
        return self._here(exact_scores(self.sides, rows, columns))


def _places(is_some: Tensor) -> Tensor:
    return is_some.nonzero()[:, 0]


def _rows(scores: Tensor, places: Tensor) -> Tensor:
    return scores if len(places) == len(scores) else scores[places]


def _reach(scores: Tensor, low_R: Tensor, high_R: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """How many scores (R, C) of each row reach `high`, and the rows and columns of those between.

    Those between reach `low` only.
    """
    low, high = (edge[:, None].to(scores.dtype) for edge in (low_R, high_R))
    if scores.device.type != "cpu":
        is_above = scores >= high
        row, column = ((scores >= low) ^ is_above).nonzero(as_tuple=True)
        return is_above.sum(dim=1), (row, column)
    values = scores.numpy()  # NumPy was 4 times as fast as torch
    reaches = values >= high.numpy()
    above = np.bitwise_count(np.packbits(reaches, axis=1)).sum(axis=1, dtype=np.int64)
    places = np.flatnonzero((values >= low.numpy()) ^ reaches)
    row, column = (torch.from_numpy(one) for one in np.divmod(places, max(1, values.shape[1])))
    return torch.from_numpy(above), (row, column)
