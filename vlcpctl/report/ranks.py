"""Which saved ranks belong to rows, and the intervals of differences that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.files.rows import Row
from vlcpctl.report.intervals import Interval, have_same_queries, intervals, scores_of
from vlcpctl.report.scores import Against, Curve

if TYPE_CHECKING:
    from vlcpctl.evaluation.rank_files import GalleryRanks, SavedRanks

Pair = tuple[Row, Row]  # of an earlier model, and of the last one
_CLOSE = 1e-6  # points between a score in a row and the same score computed from ranks


class RanksOfRows:
    """The ranks of some rows, found in files: of their checkpoint and data, and with their scores.

    `notes` says which ranks do not count, and why; `used` which files have ranks that do. If
    `vlcpctl forget` has removed queries from a file, the scores need not agree, and the queries
    count that are left.
    """

    def __init__(
        self, files: Sequence[SavedRanks], rows: Iterable[Row], *, has_answers: bool = False
    ) -> None:
        """With `has_answers`, the best wrong answers are read, too."""
        self.notes: dict[str, None] = {}
        self.used: set[Path] = set()
        self._found: dict[tuple[str, str, str], list[GalleryRanks]] = {}
        wanted = {(row.checkpoint, data) for row in rows for data in row.of_ranks}
        for file in files:
            for one in file.read(wanted, has_answers=has_answers):
                self._found.setdefault((one.checkpoint, one.data, one.split), []).append(one)

    def of(self, row: Row) -> GalleryRanks | None:
        """The ranks of a row, whole ones first."""
        places = ((row.checkpoint, data, row.split) for data in row.of_ranks)
        found = [one for place in places for one in self._found.get(place, ())]
        found = [one for one in found if one.may_be_of(row) and one.ways]
        whole = [one for one in found if not one.file.is_reduced and _agrees(one, row)]
        for one in (*whole, *(one for one in found if one.file.is_reduced)):
            self.used.add(one.file.path)
            return one
        if found:
            self.notes[
                f"the ranks of {row.run!r} on {row.task!r} do not give the scores in the rows, so "
                "they were made with another --limit or other options: they are not used"
            ] = None
        return None

    def intervals(
        self, curve: Curve, rows: Sequence[Pair], against: Against
    ) -> Mapping[str, Interval]:
        """The intervals of the difference between these rows on the data of a curve, by metric.

        Empty if a seed has no ranks of the same queries on both sides.
        """
        pairs = []
        for before, last in rows:
            one, other = self.of(before), self.of(last)
            if one is None or other is None:
                return {}
            if one.file.is_reduced or other.file.is_reduced:
                one, other = one.shared_with(other), other.shared_with(one)
                self.notes[
                    f"'vlcpctl forget' has removed queries from the ranks of {curve.run.name!r} or "
                    f"its baseline on {curve.data!r}: the interval of its drop there is over those "
                    "left"
                ] = None
            has_queries = any(len(queries.rank) for queries in one.ways.values())
            if not have_same_queries(one, other) or not has_queries:
                self.notes[
                    f"the ranks of {curve.run.name!r} and its {against} on {curve.data!r} are not "
                    "of the same queries: its drop there has no interval"
                ] = None
                return {}
            pairs.append((one, other))
        return intervals(pairs) if pairs and len(pairs) == len(curve.run.seeds) else {}


def ranks_of(
    curves: Iterable[Curve],
    files: Sequence[SavedRanks],
    against: Iterable[Against],
    more: Iterable[Pair] = (),
) -> RanksOfRows:
    """The ranks of the last models on curves, of those `against`, and of `more` pairs of rows."""
    pairs = (curve.pairs(one) for curve, one in product(curves, against))
    return RanksOfRows(files, (row for pair in chain(*pairs, more) for row in pair))


def _agrees(ranks: GalleryRanks, row: Row) -> bool:
    """Whether ranks give the scores of a row."""
    found = scores_of(ranks)
    keys = found.keys() & row.metrics.keys()
    return all(abs(found[key] - row.metrics[key]) < _CLOSE for key in keys)
