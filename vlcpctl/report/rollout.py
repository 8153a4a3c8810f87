"""What users of an index get from the last model if the index stays, grows, or is built again.

Rows with `gallery_checkpoint` say so: their queries are by a new model, and the items of the guard
by the one that the index was built with. Every choice is compared with what users have today, the
old model on its own index, in the same gallery.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vlcpctl.files.ids import canonical_json
from vlcpctl.files.rows import Row
from vlcpctl.metrics.chance import critical_value, margin_of
from vlcpctl.report.intervals import Interval
from vlcpctl.report.ranks import RankIntervals
from vlcpctl.report.scores import START, Against, Curve, Drop, Spread, over_seeds
from vlcpctl.report.table import (
    UNDEFINED,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
    number_cell,
)
from vlcpctl.report.tables import interval_cell

TODAY = "today"
CHOICES = KEEP, NEW, ALL = ("keep the index", "embed only new items", "embed all")
BOUND = 2.0  # points: a smaller loss stops no roll-out
_LOSSES: tuple[tuple[str, Against], ...] = (
    *((choice, "old index") for choice in CHOICES),
    (KEEP, "new index"),
)
_DIGITS = 6  # of the content id of a checkpoint that has no other name
_WORDS = {
    TODAY: "the old model on its index",
    KEEP: "keep the index: all items by the old model",
    NEW: "embed only new items: the others by the old model",
    ALL: "embed all: all items by the new model",
}
_IF = {KEEP: "the index stays", NEW: "only new items are embedded", ALL: "all items are embedded"}
_LOST = "lost: points against the old model on its index, in the same gallery; positive is worse"
_REBUILD = "re-embed before you deploy"
NEITHER = "do not deploy, neither with this index nor with a new one"
_NOT_MIXED = ", but not with new items by the new model: embed these with the old one, or embed all"


@dataclass(frozen=True, eq=False)
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
        lost, undefined = None, None
        if before is None or last is None:
            what = _before(against) if before is None else choice
            who = f"the model of {self.index} on its index" if what == TODAY else f"{what!r}"
            undefined = f"{who} was not measured on {self.data}"
        else:
            lost = before.minus(last)
        interval = self.intervals.get((choice, against), {}).get(key)
        return Drop(
            track=self.curve.track,
            run=self.curve.run.name,
            data=self.data,
            is_guard=True,
            key=key,
            baseline=before,
            last=last,
            drop=lost,
            interval=interval if lost is not None else None,
            undefined=undefined,
            against=against,
            method=self.curve.run.method,
            step=self.curve.run.of.last,
            seeds=self.curve.run.seeds,
        )

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
    if all(row.gallery_checkpoint is None for row in rows):
        return []
    at: dict[Hashable, Row] = {}  # by model, index and gallery
    on_index: dict[Hashable, list[Row]] = {}
    for row in rows:
        if row.gallery == "own" and row.since is None:
            index = row.gallery_checkpoint or row.checkpoint
            gallery = _gallery(row, row.options.get("distractors_by"))
            at.setdefault((*_model(row, row.checkpoint), index, gallery), row)
            if index != row.checkpoint:
                on_index.setdefault(_model(row, row.checkpoint), []).append(row)
    found: dict[Hashable, RollOut] = {}
    for curve in (one for one in curves if one.is_guard):
        for number in range(len(curve.run.seeds)):
            own = curve.row(number, curve.run.of.last)
            for row in on_index.get(_model(own, own.checkpoint), ()) if own else ():
                _add(found, curve, number, row, at)
    return list(found.values())


def _add(
    found: dict[Hashable, RollOut],
    curve: Curve,
    number: int,
    row: Row,
    at: Mapping[Hashable, Row],
) -> None:
    """Add what was measured beside a row on an index, of the same model, data and gallery."""
    new, old = row.checkpoint, row.gallery_checkpoint or ""
    name, gallery = _name(old, curve, number), _gallery(row)
    own = curve.row(number, curve.run.of.last)
    is_usual = row.n_distractor_images is None or (own and gallery == _gallery(own))
    data = curve.data if is_usual else f"{curve.data} and {row.n_distractor_images} images"
    choices = (TODAY, *CHOICES)
    empty: dict[str, list[Row | None]] = {one: [None] * len(curve.run.seeds) for one in choices}
    one = found.setdefault((id(curve), name, gallery), RollOut(curve, data, name, empty))
    sides = ((old, old, None), (new, old, None), (new, old, "query"), (new, new, None))
    for choice, (query, index, by) in zip(choices, sides, strict=True):
        one.rows[choice][number] = at.get((*_model(row, query), index, _gallery(row, by)))


def _model(row: Row, checkpoint: str) -> tuple[str, ...]:
    return row.data, row.evaluator, row.protocol, row.split, checkpoint


def _gallery(row: Row, by: str | None = None) -> str:
    """The options of a row, with who embedded the distractors as wanted."""
    options: dict[str, Any] = {**row.options, "distractors_by": by, "limit": row.limit}
    return canonical_json(options)


def _name(checkpoint: str, curve: Curve, seed: int) -> str:
    """What the model of an index is called."""
    rows = ((step, curve.row(seed, step)) for step in curve.steps)
    step = next((step for step, row in rows if row and row.checkpoint == checkpoint), None)
    if step is None:
        return checkpoint[:_DIGITS]
    at_start = " and ".join(curve.run.of.models) or "start"
    return at_start if step == START else f"{curve.run.name} step {step}"


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


def roll_out_table(found: Sequence[RollOut], key: str) -> Table | None:
    """A group for each run, guard and index, a row for today and each choice; None without any."""
    found = [one for one in found if any(one.score(choice, key) for choice in CHOICES)]
    if not found:
        return None
    columns = (
        Column("queries by the new model", is_number=False),
        *map(Column, (key, "lost", "95 % interval")),
    )
    groups = tuple(
        RowGroup(
            f"{one.curve.run.name} on {one.data}, index by {one.index}", tuple(_rows(one, key))
        )
        for one in found
    )
    subjects: dict[tuple[str, str], list[RollOut]] = {}
    for one in found:
        subjects.setdefault((one.curve.run.name, one.index), []).append(one)
    said = [sentence(members, key) for members in subjects.values()]
    missing = [one.loss(choice, key).undefined for one in found for choice in (KEEP, ALL)]
    counts = (
        f"a loss counts if it is above {BOUND:g} points and, with --ranks, above {found[0].z:.2f} "
        "standard errors, which chance alone hardly shows"
    )
    notes = (*said, _LOST, counts, *dict.fromkeys(filter(None, missing)))
    title = f"Roll-out: {key} for items in the guards"
    return Table(title, columns, groups, notes, is_ordered=True, name="roll-out")


def sentence(found: Sequence[RollOut], key: str) -> str:
    """Which choice is enough for a run and an index, on all guards, such as "the index can stay".

    A choice is enough where it was measured if no guard loses more than BOUND and than chance. It
    is not resolved if a loss may be above BOUND.
    """
    is_enough = {}
    for choice in CHOICES:
        lost = [one.is_lost(choice, key) for one in found]
        if any(one is not None for one in lost):
            is_enough[choice] = not any(lost)
    head = "it was not measured whether the index can stay"
    if is_enough.get(KEEP):
        may_lose = any(one.may_lose(KEEP, key) for one in found)
        head = "the index can stay" + (", not resolved" if may_lose else "")
        head += "" if is_enough.get(NEW, True) else _NOT_MIXED
    elif KEEP in is_enough:
        head = _REBUILD if is_enough.get(ALL, True) else NEITHER
    shown = [KEEP]
    if not is_enough.get(KEEP):
        shown.append(ALL)
    elif not is_enough.get(NEW, True):
        shown.append(NEW)
    parts = []
    for choice in (one for one in shown if one in is_enough):
        known = [loss for one in found if (loss := one.loss(choice, key)).drop]
        largest = max(known, key=lambda loss: loss.drop.mean if loss.drop else 0.0)
        parts.append(f"{_points(largest, len(found) > 1)} if {_IF[choice]}")
    details = f"; items in the guard {', '.join(parts)}" if parts else ""
    return f"{found[0].curve.run.name}, index by {found[0].index}: {head}{details}"


def _points(loss: Drop, is_largest: bool) -> str:
    """What is lost or gained, such as "lose 1.00 (95 % 0.50 to 1.50)"."""
    if loss.drop is None:
        return f"lose {UNDEFINED}"
    sign, verb, most = (1, "lose", " at most") if loss.drop.mean >= 0 else (-1, "gain", " at least")
    ends = sorted((sign * loss.interval.low, sign * loss.interval.high)) if loss.interval else ()
    interval = f" (95 % {' to '.join(map(fixed, ends))})" if ends else ""
    return f"{verb}{most if is_largest else ''} {fixed(sign * loss.drop.mean)}{interval}"


def _rows(one: RollOut, key: str) -> Iterator[tuple[TableCell, ...]]:
    nothing = TableCell(UNDEFINED, is_faint=True)
    yield TableCell(_WORDS[TODAY]), number_cell(one.score(TODAY, key)), nothing, nothing
    for choice in CHOICES:
        loss = one.loss(choice, key)
        if choice == NEW and loss.last is None:
            continue  # there are no new items in this gallery
        cells = number_cell(loss.last), number_cell(loss.drop), interval_cell(loss)
        yield TableCell(_WORDS[choice]), *cells
