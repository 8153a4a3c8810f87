"""Intervals of drops: a paired bootstrap over the queries whose ranks were saved.

A resample draws samples of the data with replacement. An image and its captions have the key of
one sample and are drawn together, because their ranks are not independent; a resample is the same
for both models and for all seeds. The interval is from the 2.5th to the 97.5th percentile of the
resampled drops (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13); of fewer
than 200 samples, of which resamples know too little, it is as wide as `few_samples_margin` says. It
is about other samples of the same kind, not about other seeds of the training. Identical content is
one query, and has the key of its first sample.

Shapes: Q queries, C samples, T kinds of samples, F counts of a sample, B and R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vlcpctl.metrics import accuracy, recall
from vlcpctl.metrics.chance import FEWEST_SAMPLES, few_samples_margin

if TYPE_CHECKING:
    import pyarrow as pa

    from vlcpctl.evaluation.rank_files import GalleryRanks

RESAMPLES = 2000
SEED = 0
LEVEL = 95  # percent

_CELLS = 1 << 21  # of resampled counts that are held at once
_CLASSES = "i2c"
_RETRIEVAL = ("i2t", "t2i")

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Pair = tuple["GalleryRanks", "GalleryRanks"]  # of the baseline and the last model


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a drop and its standard error, in points, over this many samples."""

    low: float
    high: float
    error: float
    samples: int


def scores_of(ranks: GalleryRanks) -> dict[str, float]:
    """The metrics, in percent, that ranks decide; empty if a direction is missing.

    `acc5` is among those of classes, however few there are.
    """
    ways = ranks.ways
    if set(ways) == set(_RETRIEVAL):
        return recall.recalls(ways["i2t"].rank, ways["t2i"].rank)
    labels = ways[_CLASSES].labels if set(ways) == {_CLASSES} else None
    if labels is None:
        return {}
    codes = _codes(labels)
    classes = max(int(codes.max()) + 1, *accuracy.CUTOFFS)
    return accuracy.accuracies(accuracy.tally(ways[_CLASSES].rank, codes, classes))


def have_same_queries(one: GalleryRanks, other: GalleryRanks) -> bool:
    """Whether ranks can be paired, query by query."""
    return one.ways.keys() == other.ways.keys() and all(
        queries.has_queries_of(other.ways[way]) for way, queries in one.ways.items()
    )


def intervals(pairs: Sequence[Pair]) -> dict[str, Interval]:
    """The interval of every metric's drop, as a mean over the seeds.

    There is a pair for each seed, of the same queries on both sides.
    """
    is_one_set = all(have_same_queries(pairs[0][0], one) for one, _ in pairs[1:])
    sets = [pairs] if is_one_set else [[pair] for pair in pairs]
    found = [_Shared(members) for members in sets]
    draws = [one.drops(_resamples(one.kinds.number_T, number)) for number, one in enumerate(found)]
    samples = min(int(one.kinds.number_T.sum()) for one in found)
    margins = _margins(found) if samples < FEWEST_SAMPLES else {}
    ends = (50 - LEVEL / 2, 50 + LEVEL / 2)
    intervals_ = {}
    for key in draws[0]:
        drop_R = np.mean([one[key] for one in draws], axis=0)
        if key in margins:
            middle, margin = margins[key]
            low, high = max(middle - margin, -100.0), min(middle + margin, 100.0)
        else:
            low, high = np.nanpercentile(drop_R, ends)  # a resample may lack a class
        intervals_[key] = Interval(float(low), float(high), float(np.nanstd(drop_R)), samples)
    return intervals_


def _margins(sets: Sequence[_Shared]) -> dict[str, tuple[float, float]]:
    """By metric: the drop, and half the width of the interval of few samples; means over sets."""
    found = [one.losses() for one in sets]
    margins = {}
    for key in found[0]:
        middle = np.mean([middle for middle, _ in (one[key] for one in found)])
        squares = [few_samples_margin(loss_C) ** 2 for _, loss_C in (one[key] for one in found)]
        margins[key] = float(middle), math.sqrt(math.fsum(squares)) / len(found)
    return margins


class _Shared:
    """The queries that all pairs share; drops are means over the pairs."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        is_retrieval = _CLASSES not in pairs[0][0].ways
        self.kinds = _kinds(pairs, _RETRIEVAL if is_retrieval else (_CLASSES,))
        self._of_block = _recall_drops if is_retrieval else _accuracy_drops
        self._seeds = len(pairs)

    def drops(self, blocks: Iterable[Counts]) -> dict[str, Floats]:
        """The drop (R,) of every metric where samples count (B, T) times, in blocks of B."""
        found = [self._of_block(self.kinds, weight_BT) for weight_BT in blocks]
        return {
            key: np.concatenate([block[key] for block in found]) / self._seeds for key in found[0]
        }

    def losses(self) -> dict[str, tuple[float, Floats]]:
        """By metric: the drop, and the points (C,) that each sample lost, of which it is the mean.

        They are the jackknife's pseudo-values, C D - (C - 1) D without the sample, since a metric
        may count samples unequally.
        """
        number_T = self.kinds.number_T
        samples = int(number_T.sum())
        all_D = self.drops([number_T[None]])
        without_D = self.drops([number_T - np.eye(len(number_T), dtype=np.int64)])
        found = {}
        for key, (drop,) in all_D.items():
            loss_T = samples * drop - (samples - 1) * without_D[key]
            loss_T = np.where(np.isnan(loss_T), drop, loss_T)  # the only sample of a direction
            found[key] = float(drop), np.repeat(loss_T, number_T)
        return found


@dataclass(frozen=True)
class _Kinds:
    """Samples that count alike: a resample only needs to know how many of each kind it draws.

    `lost` has, for each direction, the hits (T, K) within each cut-off that the last models lost,
    added up over seeds, `queries` the number of queries (T,). Kinds are sorted by class (T,).
    """

    number_T: Counts
    class_T: Counts
    lost: list[Counts]
    queries: list[Counts]


def _kinds(pairs: Sequence[Pair], ways: tuple[str, ...]) -> _Kinds:
    first = pairs[0][0].ways
    code_Q = _sample_codes([first[way].keys for way in ways])
    cutoffs = accuracy.CUTOFFS if ways == (_CLASSES,) else recall.CUTOFFS
    samples = int(code_Q.max()) + 1
    columns, start = [np.zeros(samples, dtype=np.int64)], 0
    for way in ways:
        query_of = code_Q[start : start + len(first[way].keys)]
        start += len(query_of)
        for cutoff in cutoffs:
            lost_Q = sum(
                _hits(one, way, cutoff) - _hits(other, way, cutoff) for one, other in pairs
            )
            columns.append(np.bincount(query_of, lost_Q, samples).astype(np.int64))
        columns.append(np.bincount(query_of, minlength=samples))
        if first[way].labels is not None:
            columns[0][query_of] = _codes(first[way].labels)
    count_TF, number_T = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    width = len(cutoffs) + 1
    blocks = [count_TF[:, 1 + at * width : 1 + (at + 1) * width] for at in range(len(ways))]
    return _Kinds(
        number_T, count_TF[:, 0], [one[:, :-1] for one in blocks], [one[:, -1] for one in blocks]
    )


def _hits(ranks: GalleryRanks, way: str, cutoff: int) -> Counts:
    return (ranks.ways[way].rank <= cutoff).astype(np.int64)


def _sample_codes(keys: Sequence[pa.StringArray]) -> Counts:
    """A number from 0 for each key, in all directions together."""
    import pyarrow as pa  # slow to import, and loaded with the ranks already

    return _codes(pa.concat_arrays(keys))


def _codes(names: pa.StringArray) -> Counts:
    """A number from 0 for each name (Q,)."""
    codes: Counts = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _resamples(number_T: Counts, number: int) -> Iterator[Counts]:
    """How often each kind is drawn, in blocks (B, T) of resamples."""
    rng = np.random.default_rng([SEED, number])
    total = int(number_T.sum())
    block = max(1, _CELLS // len(number_T))
    for start in range(0, RESAMPLES, block):
        yield rng.multinomial(total, number_T / total, min(block, RESAMPLES - start))


def _recall_drops(kinds: _Kinds, weight_BT: Counts) -> dict[str, Floats]:
    found, means = {}, []
    for way, lost_TK, queries_T in zip(_RETRIEVAL, kinds.lost, kinds.queries, strict=True):
        drop_BK = _percent(weight_BT @ lost_TK, (weight_BT @ queries_T)[:, None])
        for cutoff, drop_B in zip(recall.CUTOFFS, drop_BK.T, strict=True):
            found[f"{way}_r{cutoff}"] = drop_B
        means.append(np.mean(drop_BK, axis=1))
        found[f"{way}_rmean"] = means[-1]
    return {**found, "rm": np.mean(means, axis=0)}


def _accuracy_drops(kinds: _Kinds, weight_BT: Counts) -> dict[str, Floats]:
    (lost_TK,), (queries_T,) = kinds.lost, kinds.queries
    drop_BK = _percent(weight_BT @ lost_TK, (weight_BT @ queries_T)[:, None])
    found = {
        f"acc{cutoff}": drop_B for cutoff, drop_B in zip(accuracy.CUTOFFS, drop_BK.T, strict=True)
    }
    starts = np.flatnonzero(np.diff(kinds.class_T, prepend=-1))
    lost_BC = np.add.reduceat(weight_BT * lost_TK[:, 0], starts, axis=1)
    queries_BC = np.add.reduceat(weight_BT * queries_T, starts, axis=1)
    # A class that a resample lacks is left out, as one without images is.
    drop_BC = _percent(lost_BC, queries_BC)
    classes_B, mean_B = np.sum(~np.isnan(drop_BC), axis=1), np.full(len(drop_BC), np.nan)
    np.divide(np.nansum(drop_BC, axis=1), classes_B, out=mean_B, where=classes_B > 0)
    return {**found, "mean_per_class_recall": mean_B}


def _percent(lost: Counts, of: Counts) -> Floats:
    """100 * lost / of, NaN where `of` is 0."""
    share = np.full(np.broadcast_shapes(lost.shape, of.shape), np.nan)
    np.divide(100.0 * lost, of, out=share, where=of > 0)
    return share
