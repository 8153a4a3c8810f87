"""One count behind ranks, best wrong answers and hits: the wrong answers that outrank a right one.

A right answer's place is its number among the right ones plus the wrong answers that outrank it. A
tie is never a hit: counts are at worst, where a right answer loses its ties, and at best. Scores
are float32, in tiles; those within ERROR of an edge of the tie band are computed again in float64,
so that no device changes a count. A growing gallery is the same count, written down at the end of
each part.
Shapes: M parts, Q queries, R right answers of each, B queries of a block, S those still searched, G
gallery rows, C those of a tile, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from vlcpctl.evaluation.search.galleries import ClassSearch, Search
from vlcpctl.evaluation.search.vectors import AnyVectors, Ids, Mask, Scores, Vectors, exact_scores

BAND = 1e-5  # scores that differ by less are tied
ERROR = 4e-6  # bound on the float32 error of inner products of unit vectors; 1.1e-6 was seen
EQUAL = 1e-9  # copies of one embedding may differ in the last bits, by their place in a tile
_TILE, _GPU_TILE = (2048, 1024), (4096, 4096)  # queries and gallery rows: 8 MB, in a CPU's cache
_FEWEST = 256  # gallery rows of a tile, if a part ends there
_CROWD = 32  # with more uncertain scores in a tile, all of a query are computed again
_OPEN = 0.75  # share of queries still searched, below which the others are left out of the product
_COPIED = 0.5  # share of queries, below which their scores are copied rather than all read
_SPARE, _TIED = 2, 16  # candidates beyond `top`, and for right answers tied with the best, at most
_ROWS, _MEMBERS = 2048, 4096  # queries and items of classes at once
_TOGETHER = 256  # items of small classes that are multiplied together
# FAISS on GPUs: most neighbours, and pieces of at most one part in so many of the free memory
_MOST, _SHARE = 2048, 4
_SCRATCH_BYTES = 256 << 20  # that FAISS keeps on a GPU; its default is 1.5 GB

Masked = Callable[[Tensor, Ids, int, int], None]  # sets scores (C, S) of right answers to -inf
Tile = list[tuple[int, int, int]]  # the part, first row and end of what is in a tile


class Outranked(NamedTuple):
    """(2, M, Q, R) wrong answers that outrank each right one, at worst and at best, by part.

    With `top` counts may end there. Without it, also the row of the best wrong answer, the first of
    equal ones or -1, and its score, (M, Q) each.
    """

    counts: np.ndarray
    wrong: Ids
    score: Scores


def ranks(search: Search, device: str, top: int) -> tuple[np.ndarray, np.ndarray]:
    """(M, Q) wrong answers above the best right one, at worst and at best, up to `top`.

    On a GPU, FAISS finds candidates in a gallery of one part, and the count settles the rest.
    """
    place = device_of(device)
    if len(search.ends_M) == 1 and len(search) and has_faiss_for(place):
        return by_candidates(search, place, top)
    return counted(search, place, top)


def counted(search: Search, device: torch.device, top: int) -> tuple[np.ndarray, np.ndarray]:
    """What `ranks` finds, by the count alone."""
    found = outranked(search, _best_right(search)[0][:, None], _answers(search), device, top)
    worst, best = np.minimum(found.counts[..., 0], top)
    return worst, best


def exact_ranks(search: Search, device: str) -> tuple[np.ndarray, ...]:
    """(M, Q) wrong answers above the best right one, at worst and at best, all of them.

    Then the gallery row of the best wrong answer, and its rank from 1; -1 where there is none.
    """
    best_Q, score_A = _best_right(search)
    found = outranked(search, best_Q[:, None], _answers(search), device_of(device))
    worst, best = found.counts[..., 0]
    wrong_rank = np.empty_like(found.wrong)
    for part, score_Q in enumerate(found.score):
        outranks_A = score_A - BAND > score_Q[search.right_A2[:, 0]]
        above_Q = np.bincount(search.right_A2[:, 0], outranks_A, minlength=len(search))
        wrong_rank[part] = np.where(worst[part] > 0, 1, np.maximum(1 + above_Q, 2))
    return worst, best, found.wrong, np.where(found.wrong < 0, -1, wrong_rank)


def by_candidates(search: Search, device: torch.device, top: int) -> tuple[np.ndarray, np.ndarray]:
    """What `counted` finds in a gallery of one part, from the nearest neighbours of each query."""
    (best_Q, score_A), (owner_A, right_A) = _best_right(search), search.right_A2.T
    size = len(search.gallery_GD)
    tied_Q = np.bincount(owner_A, score_A >= best_Q[owner_A] - 2 * BAND, minlength=len(search))
    k = min(size, _MOST, top + min(int(tied_Q.max()), _TIED) + _SPARE)
    score_QK, id_QK = nearest(search.query_QD, search.gallery_GD, k, device)
    asked = np.arange(len(search))[:, None] * size + id_QK
    is_wrong = ~np.isin(asked, owner_A * size + right_A)
    found = np.empty((2, 1, len(search)), np.int64)
    is_sure = np.ones(len(search), np.bool_)
    for count_Q, edge_Q in zip(found[:, 0], (best_Q - BAND, best_Q + BAND), strict=True):
        above_QK = score_QK.astype(np.float64) - edge_Q[:, None]
        count_Q[:] = np.minimum(np.sum(is_wrong & (above_QK >= 0), axis=1), top)
        # Unsure: a candidate near the edge, or rows beyond the candidates that may reach the edge.
        is_sure &= ~np.any(is_wrong & (np.abs(above_QK) <= ERROR), axis=1)
        is_sure &= (k == size) | (count_Q >= top) | (above_QK[:, -1] < -ERROR)
    rest = np.flatnonzero(~is_sure)
    if len(rest):
        found[:, :, rest] = counted(search.of_rows(rest), device, top)
    worst, best = found
    return worst, best


@torch.inference_mode()
def outranked(
    search: Search | ClassSearch,
    edge_QR: Scores,
    mask: Masked,
    device: torch.device,
    top: int | None = None,
) -> Outranked:
    """Count the wrong answers above each right one; exact scores `edge_QR`, or -inf for none."""
    rows, columns = _TILE if device.type == "cpu" else _GPU_TILE
    shape = len(search.ends_M), len(edge_QR)
    kind = np.min_scalar_type(len(search.gallery_GD))
    counts = np.zeros((2, *shape, edge_QR.shape[1]), kind)
    named = shape if top is None else (0, 0)
    found = Outranked(counts, np.full(named, -1), np.full(named, -np.inf))
    for first in range(0, len(edge_QR), rows):
        own = slice(first, min(first + rows, len(edge_QR)))
        block = _Block(search, edge_QR, own, device)
        for tile in tiles(search.ends_M, columns):
            block.read(tile, mask)
            block.count(found, top)
            if top is None:
                block.rise(found)
            else:
                block.leave_out(top)
    return found


@final
class _Block:
    """Some queries, and what the gallery rows so far hold for each."""

    def __init__(
        self, search: Search | ClassSearch, edge_QR: Scores, own: slice, device: torch.device
    ) -> None:
        self.search, self.edge_QR, self.own, self.device = search, edge_QR, own, device
        self.here_S = np.arange(own.stop - own.start)  # places in the block
        self.query_BD = search.query_QD[own]
        self.query_SD = self._there(self.query_BD)
        self.count_2BR = np.zeros((2, len(self.here_S), edge_QR.shape[1]), np.int64)
        self.wrong_B = np.full(len(self.here_S), -1)
        self.score_B = np.full(len(self.here_S), -np.inf)

    def _there(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def read(self, tile: Tile, mask: Masked) -> None:
        """Compute the scores of a tile in float32, without those of right answers.

        A column for each query: what is asked of each part then runs along rows of memory.
        """
        self.parts, self.rows = slice(tile[0][0], tile[-1][0] + 1), slice(tile[0][1], tile[-1][2])
        self.sizes = [stop - start for _, start, stop in tile]
        self.part_C = np.repeat(np.arange(len(tile)), self.sizes)
        self.gallery_CD = self.search.gallery_GD[self.rows]
        self.scores_CS = product(self._there(self.gallery_CD), self.query_SD)
        if self.scores_CS.numel():
            mask(self.scores_CS, self.own.start + self.here_S, self.rows.start, self.rows.stop)
        self.highest_PS = _highest(self.scores_CS, self.sizes)

    def count(self, found: Outranked, top: int | None) -> None:
        """Note how many wrong answers outrank right ones at the end of each part of the tile."""
        counts = found.counts[:, self.parts, self.own]
        counts[:] = self.count_2BR[:, None]
        highest_S = self.highest_PS.max(axis=0)
        for number, edge_B in enumerate(self.edge_QR[self.own].T):
            edge_S = edge_B[self.here_S]
            reaches_S = np.isfinite(edge_S) & (highest_S >= edge_S - (BAND + ERROR))
            if top is not None:
                reaches_S &= self.count_2BR[1, self.here_S, number] < top
            if not reaches_S.any():
                continue
            some, scores = self._some(reaches_S)
            here, edge = self.here_S[some], np.where(reaches_S, edge_S, np.inf)[some]
            is_sure = _reach(scores, edge[None] + (BAND + ERROR))
            near = _places(_reach(scores, edge[None] - (BAND + ERROR)) ^ is_sure)
            exact, cell = self._exact(here, near), self._cells(here, near)
            sure = _counts(is_sure, self.sizes)
            for count_PBR, count_BR, shift in zip(
                counts, self.count_2BR, (-BAND, BAND), strict=True
            ):
                more = sure.copy()
                np.add.at(more.reshape(-1), cell[exact >= edge[near[1]] + shift], 1)
                more = np.cumsum(more, axis=0, dtype=counts.dtype)
                count_PBR[:, here, number] += more
                count_BR[here, number] += more[-1]

    def rise(self, found: Outranked) -> None:
        """Note the best wrong answers at the end of each part of the tile: of equal the first."""
        wrong, score = found.wrong[self.parts, self.own], found.score[self.parts, self.own]
        here, scores = self._some(self.highest_PS.max(axis=0) > self.score_B - ERROR)
        highest_PS = self.highest_PS[:, here]
        before_PS = np.concatenate([self.score_B[None, here].astype(np.float32), highest_PS[:-1]])
        # Of a part that may hold a better one, all that may be its best are computed exactly.
        is_rise = highest_PS > np.maximum.accumulate(before_PS) - 2 * ERROR
        least = np.where(is_rise, highest_PS - 2 * ERROR, np.inf)
        near = _places(_reach(scores, least if len(least) == 1 else least[self.part_C]))
        exact = self._exact(here, near)
        # The first best of each part and query, n of them, in order of parts.
        cell_n, number = np.unique(self._cells(here, near), return_inverse=True)
        best_n = np.full(len(cell_n), -np.inf)
        np.maximum.at(best_n, number, exact)
        is_best = exact >= best_n[number] - EQUAL
        _, firsts = np.unique(number[is_best], return_index=True)  # rows ascend
        best_n, row_n = exact[is_best][firsts], near[0][is_best][firsts] + self.rows.start
        part_n, here_n = np.divmod(cell_n, max(1, len(here)))
        query_n = here[here_n]
        ends = np.searchsorted(part_n, np.arange(len(self.sizes) + 1))
        for part, own in enumerate(map(slice, ends[:-1], ends[1:])):
            is_better = best_n[own] > self.score_B[query_n[own]] + EQUAL
            query = query_n[own][is_better]
            self.score_B[query], self.wrong_B[query] = best_n[own][is_better], row_n[own][is_better]
            wrong[part], score[part] = self.wrong_B, self.score_B

    def leave_out(self, top: int) -> None:
        """Leave out queries with `top` wrong answers before every right one, if they are many."""
        edge_SR = self.edge_QR[self.own][self.here_S]
        is_open = (np.isfinite(edge_SR) & (self.count_2BR[1, self.here_S] < top)).any(axis=1)
        if is_open.sum() < _OPEN * len(is_open):
            self.here_S = self.here_S[is_open]
            self.query_SD = self.query_SD[torch.from_numpy(is_open).to(self.device)]

    def _some(self, wanted_S: Mask) -> tuple[Ids, Tensor]:
        """Columns of the tile, and their scores.

        They are those wanted, or all, if a copy of those would cost more than it saves.
        """
        some = np.flatnonzero(wanted_S)
        if len(some) >= _COPIED * len(wanted_S):
            return np.arange(len(wanted_S)), self.scores_CS
        columns = torch.from_numpy(some).to(self.device)
        return some, self.scores_CS.index_select(1, columns)

    def _cells(self, here: Ids, near: tuple[Ids, Ids]) -> Ids:
        """(N,) places of pairs of a row and a query in a matrix of parts and queries."""
        return self.part_C[near[0]] * len(here) + near[1]

    def _exact(self, here: Ids, near: tuple[Ids, Ids]) -> Scores:
        """(N,) exact scores of pairs of a row of the tile and a query, by its place in `here`."""
        row, place = near
        in_crowd = np.bincount(place, minlength=len(here)) > _CROWD
        is_alone = ~in_crowd[place]
        exact = np.empty(len(place))
        alone = here[place[is_alone]], row[is_alone]
        exact[is_alone] = exact_scores(self.query_BD, self.gallery_CD, *alone)
        if in_crowd.any():
            query = self.query_BD[here[in_crowd]].astype(np.float64)
            scores = query @ self.gallery_CD.astype(np.float64).T
            number = np.cumsum(in_crowd) - 1
            exact[~is_alone] = scores[number[place[~is_alone]], row[~is_alone]]
        return exact


def product(gallery_CD: Tensor, query_SD: Tensor) -> Tensor:
    """(C, S) inner products."""
    if query_SD.device.type == "cpu":  # NumPy was 1.1 times as fast as torch
        return torch.from_numpy(gallery_CD.numpy() @ query_SD.numpy().T)
    arithmetic = torch.backends.cuda.matmul
    was_allowed, arithmetic.allow_tf32 = arithmetic.allow_tf32, False  # as for training: too coarse
    try:
        return gallery_CD @ query_SD.T
    finally:
        arithmetic.allow_tf32 = was_allowed


def tiles(ends_M: Ids, most: int) -> Iterator[Tile]:
    """The gallery in tiles of up to `most` rows.

    Small parts share one, but not with more rows than come before: those may end a search.
    """
    tile: Tile = []
    start = 0
    for part, end in enumerate(ends_M.tolist()):
        for stop in [*range(start + most, end, most), end]:
            if tile and stop - tile[0][1] > min(most, max(_FEWEST, tile[0][1])):
                yield tile
                tile = []
            tile.append((part, start, stop))
            start = stop
    yield tile


def _highest(scores_CS: Tensor, sizes: list[int]) -> Vectors:
    """(P, S) the highest score of each part; -inf without scores."""
    none = scores_CS.new_full((scores_CS.shape[1],), -torch.inf)
    parts = [part.amax(dim=0) if len(part) else none for part in scores_CS.split(sizes)]
    highest: Vectors = torch.stack(parts).cpu().numpy()
    return highest


def _reach(scores: Tensor, edges: np.ndarray) -> Tensor:
    """(C, S) bool: which scores reach their edges, (1, S) or (C, S)."""
    edge = edges.astype(np.float32, copy=False)
    if scores.device.type == "cpu":  # NumPy was twice as fast as torch
        return torch.from_numpy(scores.numpy() >= edge)
    return scores >= torch.from_numpy(edge).to(scores.device)


def _counts(is_one: Tensor, sizes: list[int]) -> np.ndarray:
    """(P, S) how many of each part are true; a tile has few enough rows for 16 bits."""
    if is_one.device.type == "cpu":  # NumPy was 4 times as fast as torch
        parts = np.split(is_one.numpy(), np.cumsum(sizes)[:-1])
        return np.stack([part.sum(axis=0, dtype=np.uint16) for part in parts])
    counts = torch.stack([part.sum(dim=0) for part in is_one.split(sizes)])
    return counts.cpu().numpy().astype(np.uint16)


def _places(is_one: Tensor) -> tuple[Ids, Ids]:
    """The rows and columns of what is true, row by row."""
    if is_one.device.type == "cpu":
        return np.divmod(np.flatnonzero(is_one.numpy()), is_one.shape[1])
    row, column = is_one.nonzero(as_tuple=True)
    return row.cpu().numpy(), column.cpu().numpy()


def _best_right(search: Search) -> tuple[Scores, Scores]:
    """(Q,) the exact score of each query's best right answer, and (A,) those of all."""
    owner_A, right_A = search.right_A2.T
    score_A = exact_scores(search.query_QD, search.gallery_GD, owner_A, right_A)
    best_Q: Scores = np.maximum.reduceat(score_A, np.searchsorted(owner_A, np.arange(len(search))))
    return best_Q, score_A


def _answers(search: Search) -> Masked:
    """Masks the right answers of a search."""
    owner_A, right_A = search.right_A2.T

    def mask(scores: Tensor, query_S: Ids, first: int, end: int) -> None:
        own = slice(*np.searchsorted(owner_A, [query_S[0], query_S[-1] + 1]))
        is_here = (right_A[own] >= first) & (right_A[own] < end)
        owner, column = owner_A[own][is_here], right_A[own][is_here] - first
        row = np.searchsorted(query_S, owner)
        places = np.stack([column, row])[:, query_S[row] == owner]
        scores[tuple(torch.from_numpy(places).to(scores.device))] = -torch.inf

    return mask


def device_of(device: str) -> torch.device:
    """Where to compute, given auto, cpu, cuda or cuda:N."""
    has_gpu = device != "cpu" and torch.cuda.is_available()
    return torch.device(("cuda" if device == "auto" else device) if has_gpu else "cpu")


def has_faiss_for(device: torch.device) -> bool:
    """Whether FAISS can search on a device, and it is a GPU."""
    if device.type != "cuda":
        return False
    import faiss

    return hasattr(faiss, "StandardGpuResources") and (device.index or 0) < faiss.get_num_gpus()


def nearest(
    query_QD: AnyVectors, gallery_GD: AnyVectors, k: int, device: torch.device
) -> tuple[Vectors, Ids]:
    """(Q, k) largest inner products of each query in descending order, and their gallery rows.

    FAISS finds them, on the CPU, too, so that every machine tests it. `k` is at most the size of
    the gallery, and on a GPU `_MOST`.
    """
    import faiss

    sides = [np.ascontiguousarray(one[:], dtype=np.float32) for one in (query_QD, gallery_GD)]
    if device.type == "cpu":
        found: tuple[Vectors, Ids] = faiss.knn(*sides, k, faiss.METRIC_INNER_PRODUCT)
        return found
    limit = torch.cuda.mem_get_info(device)[0] // _SHARE
    number = -1 if device == torch.device("cuda") else device.index  # -1: the current one
    on_gpu: tuple[Vectors, Ids] = faiss.knn_gpu(
        *(_resources(number), *sides, k),
        metric=faiss.METRIC_INNER_PRODUCT,
        device=number,
        vectorsMemoryLimit=limit,
        queriesMemoryLimit=limit,
    )
    return on_gpu


@cache
def _resources(_gpu: int) -> Any:
    """What FAISS needs on a GPU, which all searches share: each would reserve memory."""
    import faiss

    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_SCRATCH_BYTES)
    return resources


def hits(search: ClassSearch, device: str, top: int, rows: range) -> np.ndarray:
    """(2, M, Q, top) the places of the lists of some queries that hold a right answer.

    At worst and at best, in the galleries of the first 1, 2, ... M parts. A list is the gallery
    without the query, best first; of tied items the wrong ones come first.
    """
    found = np.zeros((2, len(search.ends_M), len(rows), top), np.bool_)
    for first in range(rows.start, rows.stop, _ROWS):
        block = search.of_rows(range(first, min(first + _ROWS, rows.stop)))
        lists = _best_right_lists(block, top)
        edge_QR = _descending(lists.transpose(1, 0, 2).reshape(lists.shape[1], -1))
        edge_QR[:, 1:][edge_QR[:, 1:] == edge_QR[:, :-1]] = -np.inf  # each once
        edge_QR = _descending(edge_QR)
        edge_QR = edge_QR[:, : max(1, int(np.isfinite(edge_QR).sum(axis=1).max()))]
        counts = outranked(block, edge_QR, _classes(block), device_of(device), top).counts
        own = slice(first - rows.start, first - rows.start + len(edge_QR))
        for part, best_QR in enumerate(lists):
            number = (edge_QR[:, None, :] == best_QR[:, :, None]).argmax(axis=2)
            for hit, count_QR in zip(found[:, part, own], counts[:, part], strict=True):
                at = np.arange(top) + np.take_along_axis(count_QR, number, axis=1)
                query, right = np.nonzero(np.isfinite(best_QR) & (at < top))
                hit[query, at[query, right]] = True
    return found


def _descending(values: Scores) -> Scores:
    return -np.sort(-values, axis=1)


def _classes(search: ClassSearch) -> Masked:
    """Masks the items of a query's class."""
    class_Q, class_G = (torch.from_numpy(one) for one in (search.class_Q, search.class_G))

    def mask(scores: Tensor, query_S: Ids, first: int, end: int) -> None:
        own, other = class_Q[torch.from_numpy(query_S)], class_G[first:end, None]
        scores.masked_fill_(own.to(scores.device) == other.to(scores.device), -torch.inf)

    return mask


def _best_right_lists(search: ClassSearch, top: int) -> Scores:
    """(M, Q, top) the exact scores of the best right answers in the first parts, best first.

    -inf where there are fewer. Computed for some classes at once: right answers may rank below all
    others.
    """
    found = np.full((len(search.ends_M), len(search.class_Q), top), -np.inf)
    order_Q, order_G = (np.argsort(one, kind="stable") for one in (search.class_Q, search.class_G))
    shared = np.intersect1d(search.class_Q, search.class_G)
    if not len(shared):
        return found
    ends = np.searchsorted(search.class_G, shared, side="right", sorter=order_G)
    for names in np.split(shared, np.flatnonzero(np.diff(ends // _TOGETHER)) + 1):
        rows = _run(search.class_Q, order_Q, names)
        members = np.sort(_run(search.class_G, order_G, names))
        queries = search.query_QD[rows].astype(np.float64)
        best, start = found[0, rows], 0
        for part, end in enumerate(np.searchsorted(members, search.ends_M).tolist()):
            for first in range(start, end, _MEMBERS):
                some = members[first : min(first + _MEMBERS, end)]
                scores = queries @ search.gallery_GD[some].astype(np.float64).T
                is_right = search.class_Q[rows, None] == search.class_G[some]
                scores[~is_right | (some == search.itself_Q[rows, None])] = -np.inf
                both = np.concatenate([best, scores], axis=1)
                best = _descending(-np.partition(-both, top - 1, axis=1)[:, :top])
            found[part, rows], start = best, end
    return found


def _run(classes: Ids, order: Ids, names: Ids) -> Ids:
    """The rows from the first of some classes to the last, given rows sorted by class."""
    return order[slice(*np.searchsorted(classes, [names[0], names[-1] + 1], sorter=order))]
