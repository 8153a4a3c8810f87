"""What users of an index get from the last model if the index stays, grows, or is built again.

Rows with `gallery_checkpoint` say so: their queries are by a new model, and the items of the guard
by the one that the index was built with. Every choice is compared with what users have today, the
old model on its own index, in the same gallery.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vlcpctl.files.ids import canonical_json
from vlcpctl.files.rows import Row
from vlcpctl.metrics.chance import critical_value, margin_of
from vlcpctl.report.scores.drops import Against, Curve, Drop, SeedRows
from vlcpctl.report.scores.intervals import Interval
from vlcpctl.report.scores.runs import START
from vlcpctl.report.scores.saved_ranks import RankIntervals
from vlcpctl.report.scores.summary import Spread, over_seeds

TODAY = "today"
CHOICES = KEEP, NEW, ALL = ("keep the index", "embed only new items", "embed all")
BOUND = 2.0  # points: a smaller loss stops no roll-out

_LOSSES: tuple[tuple[str, Against], ...] = (
    *((choice, "old index") for choice in CHOICES),
    (KEEP, "new index"),
)
_DIGITS = 6  # of the content id of a checkpoint that has no other name


@dataclass(frozen=True)
class RollOut:
    """The choices for one run on one guard, in one gallery.

    `data` is the guard with what was added to it, and `index` the model that built the index.
    `rows` has, for today and for each choice, the row of every seed, None where it is missing. A
    loss counts from `z` standard errors on.
    """

    curve: Curve
    data: str
    index: str
    rows: Mapping[str, list[Row | None]]
    intervals: Mapping[tuple[str, Against], Mapping[str, Interval]] = field(default_factory=dict)
    z: float = 0.0

    def pairs(self, choice: str, against: Against) -> list[tuple[Row, Row]]:
        """The rows of both sides of a loss, of the seeds that have both."""
        found = zip(self.rows[_before(against)], self.rows[choice], strict=True)
        return [(one, other) for one, other in found if one and other]

    def score(self, choice: str, key: str) -> Spread | None:
        """The scores of a choice or of today, one for each seed; None if a seed lacks one."""
        return over_seeds(row.metrics.get(key) if row else None for row in self.rows[choice])

    def loss(self, choice: str, key: str, against: Against = "old index") -> Drop:
        """What users lose with a choice, against today's index or one that is built again."""
        before, last = self.score(_before(against), key), self.score(choice, key)
        found = Drop(
            track=self.curve.track,
            run=self.curve.run.name,
            data=self.data,
            is_guard=True,
            key=key,
            baseline=before,
            last=last,
            drop=None,
            against=against,
        )
        if before is None or last is None:
            what = _before(against) if before is None else choice
            who = f"the model of {self.index} on its index" if what == TODAY else f"{what!r}"
            return replace(found, undefined=f"{who} was not measured on {self.data}")
        lost = Spread(tuple(one - two for one, two in zip(before.values, last.values, strict=True)))
        interval = self.intervals.get((choice, against), {}).get(key)
        seeds = tuple(one.seed for one in self.curve.seeds)
        return replace(found, drop=lost, interval=interval, seeds=seeds)

    def is_lost(self, choice: str, key: str) -> bool | None:
        """Whether users lose more than BOUND, and more than chance shows; None if not measured."""
        found = self.loss(choice, key)
        error = 0.0 if found.interval is None else found.interval.error
        return None if found.drop is None else found.drop.mean > max(BOUND, self.z * error)

    def may_lose(self, choice: str, key: str) -> bool:
        """Whether the loss may be above BOUND: it is at 1.96 standard errors more."""
        found = self.loss(choice, key)
        if found.drop is None or found.interval is None:
            return False
        return found.drop.mean + margin_of(found.interval.error) > BOUND


def _before(against: Against) -> str:
    return ALL if against == "new index" else TODAY


def roll_outs(curves: Iterable[Curve], rows: Sequence[Row]) -> list[RollOut]:
    """The choices on every guard where the last model was evaluated on an index of another one.

    `rows` are all rows, also those on indexes, which curves do not have.
    """
    measured = _Measured(rows)
    found: dict[Hashable, RollOut] = {}
    guards = [curve for curve in curves if curve.is_guard]
    for curve, number in ((one, number) for one in guards for number in range(len(one.seeds))):
        seed = curve.seeds[number]
        own = seed.steps.get(curve.run.last)
        for row in measured.on_indexes(own):
            new, old = row.checkpoint, row.gallery_checkpoint or ""
            name, gallery = _name(old, curve, seed), _gallery(row)
            is_usual = own is not None and gallery == _gallery(own)
            data = curve.data if is_usual else f"{curve.data}{_added(row)}"
            empty: dict[str, list[Row | None]] = {
                choice: [None] * len(curve.seeds) for choice in (TODAY, *CHOICES)
            }
            one = found.setdefault((id(curve), name, gallery), RollOut(curve, data, name, empty))
            one.rows[TODAY][number] = measured.at(row, old, old)
            one.rows[KEEP][number] = measured.at(row, new, old)
            one.rows[NEW][number] = measured.at(row, new, old, "query")
            one.rows[ALL][number] = measured.at(row, new, new)
    return list(found.values())


class _Measured:
    """Rows by who embedded queries, gallery and distractors; empty without rows on an index."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._at: dict[Hashable, Row] = {}
        self._indexed: dict[Hashable, list[Row]] = {}
        if all(row.gallery_checkpoint is None for row in rows):
            return
        for row in rows:
            if row.gallery == "own" and row.since is None:
                index = row.gallery_checkpoint or row.checkpoint
                place = self._place(row, row.checkpoint, index, row.options.get("distractors_by"))
                self._at.setdefault(place, row)
                if index != row.checkpoint:
                    self._indexed.setdefault(self._model(row), []).append(row)

    def at(self, row: Row, query: str, index: str, by: str | None = None) -> Row | None:
        """The row with these checkpoints; `by` is who embedded the distractors of a mixed index."""
        return self._at.get(self._place(row, query, index, by))

    def on_indexes(self, own: Row | None) -> Sequence[Row]:
        """The rows of the same model and data on indexes of other models."""
        return () if own is None else self._indexed.get(self._model(own), ())

    def _model(self, row: Row, checkpoint: str | None = None) -> Hashable:
        return row.data, row.evaluator, row.protocol, row.split, checkpoint or row.checkpoint

    def _place(self, row: Row, query: str, index: str, by: str | None) -> Hashable:
        return self._model(row, query), index, _gallery(row, by)


def with_intervals(
    found: Sequence[RollOut], ranks: RankIntervals, false_alarms: float
) -> tuple[RollOut, ...]:
    """The same with paired intervals, and with the critical value of all losses together."""
    judged = sum(bool(one.pairs(choice, "old index")) for one in found for choice in CHOICES)
    z = critical_value(judged, false_alarms)
    return tuple(
        replace(
            one,
            intervals={
                loss: ranks.of_pairs(one.curve, one.pairs(*loss), loss[1]) for loss in _LOSSES
            },
            z=z,
        )
        for one in found
    )


def every_pair(found: Iterable[RollOut]) -> list[tuple[Row, Row]]:
    """The rows that are compared, whose ranks intervals need."""
    return [pair for one in found for loss in _LOSSES for pair in one.pairs(*loss)]


def unused_note(found: Iterable[RollOut], rows: Iterable[Row]) -> list[str]:
    """A note if rows on an index are not about the last model of a run on a guard."""
    used = {id(row) for one in found for of_seeds in one.rows.values() for row in of_seeds}
    unused = sum(row.gallery_checkpoint is not None and id(row) not in used for row in rows)
    note = (
        f"not shown: {unused} rows with a gallery_checkpoint that are not of a run's last model on "
        "a guard, or not in the gallery of such a row"
    )
    return [note] if unused else []


def judged_losses(found: Iterable[RollOut]) -> list[Drop]:
    """`index_loss` and `reembed_gain` in every metric: what is lost by keeping the index."""
    sides: tuple[Against, Against] = ("old index", "new index")
    return [
        one.loss(KEEP, key, against)
        for one in found
        for key in one.curve.track.keys
        for against in sides
        if one.score(KEEP, key) is not None
    ]


def _gallery(row: Row, by: str | None = None) -> str:
    """The options of a row, with who embedded the distractors as wanted."""
    options: dict[str, Any] = {**row.options, "distractors_by": by, "limit": row.limit}
    return canonical_json(options)


def _name(checkpoint: str, curve: Curve, seed: SeedRows) -> str:
    """What the model of an index is called."""
    steps = [step for step, row in seed.steps.items() if row.checkpoint == checkpoint]
    if not steps:
        return checkpoint[:_DIGITS]
    at_start = " and ".join(curve.run.models) or "start"
    return at_start if steps[0] == START else f"{curve.run.name} step {steps[0]}"


def _added(row: Row) -> str:
    return "" if row.n_distractor_images is None else f" and {row.n_distractor_images} images"
