"""What users of an index get from the last model if the index stays, grows, or is built again.

Rows with `gallery_checkpoint` say so: their queries are by a new model, and the items of the guard
by the one that the index was built with. Every choice is compared with what users have today, the
old model on its own index, in the same gallery.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vlcpctl.files.ids import canonical_json
from vlcpctl.files.rows import Row
from vlcpctl.metrics.chance import critical_value, margin_of
from vlcpctl.report.intervals import Interval
from vlcpctl.report.ranks import RanksOfRows
from vlcpctl.report.scores import START, Against, Curve, Drop, Spread, grouped, over_seeds
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, fixed, number_cell
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
        lost = None if before is None or last is None else before.minus(last)
        what = _before(against) if before is None else choice
        who = f"the model of {self.index} on its index" if what == TODAY else f"{what!r}"
        return Drop(
            curve=self.curve,
            data=self.data,
            key=key,
            against=against,
            baseline=before,
            last=last,
            drop=lost,
            interval=self.intervals.get((choice, against), {}).get(key) if lost else None,
            undefined=None if lost else f"{who} was not measured on {self.data}",
        )


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
    guards = [one for one in curves if one.is_guard]
    for curve, own in ((one, row) for one in guards for row in one.last_rows):
        number = curve.run.seeds.index(own.seed)
        for row in on_index.get(_model(own, own.checkpoint), ()):
            gallery, name = _gallery(row), _name(row.gallery_checkpoint or "", curve, number)
            is_usual = row.n_distractor_images is None or gallery == _gallery(own)
            more = "" if is_usual else f" and {row.n_distractor_images} images"
            empty: dict[str, list[Row | None]]
            empty = {one: [None] * len(curve.run.seeds) for one in _WORDS}
            one = RollOut(curve, f"{curve.data}{more}", name, empty)
            one = found.setdefault((id(curve), name, gallery), one)
            # What was measured beside it, of the same model, data and gallery.
            new, old = row.checkpoint, row.gallery_checkpoint
            sides = ((old, old, None), (new, old, None), (new, old, "query"), (new, new, None))
            for choice, (query, of, by) in zip(_WORDS, sides, strict=True):
                one.rows[choice][number] = at.get((*_model(row, query), of, _gallery(row, by)))
    return list(found.values())


def _model(row: Row, checkpoint: str | None) -> tuple[str | None, ...]:
    return row.data, row.evaluator, row.protocol, row.split, checkpoint


def _gallery(row: Row, by: object = None) -> str:
    """The options of a row, with who embedded the distractors as wanted."""
    return canonical_json({**row.options, "distractors_by": by, "limit": row.limit})


def _name(checkpoint: str, curve: Curve, seed: int) -> str:
    """What the model of an index is called."""
    rows = ((step, curve.row(seed, step)) for step in curve.steps)
    step = next((step for step, row in rows if row and row.checkpoint == checkpoint), None)
    if step is None:
        return checkpoint[:_DIGITS]
    at_start = " and ".join(curve.run.of.models) or "start"
    return at_start if step == START else f"{curve.run.name} step {step}"


def with_intervals(
    found: Sequence[RollOut], ranks: RanksOfRows, false_alarms: float
) -> tuple[RollOut, ...]:
    """The same with paired intervals, and with the critical value of all losses together."""
    judged = sum(bool(one.pairs(choice, "old index")) for one in found for choice in CHOICES)
    z, every = critical_value(judged, false_alarms), []
    for one in found:
        ends = {loss: ranks.intervals(one.curve, one.pairs(*loss), loss[1]) for loss in _LOSSES}
        every.append(replace(one, intervals=ends, z=z))
    return tuple(every)


def every_pair(found: Iterable[RollOut]) -> list[tuple[Row, Row]]:
    """The rows that are compared, whose ranks intervals need."""
    return [pair for one in found for loss in _LOSSES for pair in one.pairs(*loss)]


def judged_losses(found: Iterable[RollOut]) -> list[Drop]:
    """`index_loss` and `reembed_gain` in every metric: what is lost by keeping the index."""
    sides: tuple[Against, Against] = ("old index", "new index")
    keys = ((one, key) for one in found for key in one.curve.track.keys if one.score(KEEP, key))
    return [one.loss(KEEP, key, against) for one, key in keys for against in sides]


def roll_out_table(found: Sequence[RollOut], key: str) -> Table | None:
    """A group for each run, guard and index, a row for today and each choice; None without any."""
    found = [one for one in found if any(one.score(choice, key) for choice in CHOICES)]
    if not found:
        return None
    groups = []
    for one in found:
        today, dash = number_cell(one.score(TODAY, key)), number_cell(None)
        rows = [(TableCell(_WORDS[TODAY]), today, dash, dash)]
        for choice in CHOICES:
            loss = one.loss(choice, key)
            if choice != NEW or loss.last is not None:  # a gallery may have no new items
                cells = number_cell(loss.last), number_cell(loss.drop), interval_cell(loss)
                rows.append((TableCell(_WORDS[choice]), *cells))
        name = f"{one.curve.run.name} on {one.data}, index by {one.index}"
        groups.append(RowGroup(name, tuple(rows)))
    subjects = grouped(found, lambda one: (one.curve.run.name, one.index))
    missing = [one.loss(choice, key).undefined for one in found for choice in (KEEP, ALL)]
    counts = (
        f"a loss counts if it is above {BOUND:g} points and, with --ranks, above {found[0].z:.2f} "
        "standard errors, which chance alone hardly shows"
    )
    said = (sentence(members, key) for members in subjects.values())
    notes = (*said, _LOST, counts, *dict.fromkeys(filter(None, missing)))
    heads = map(Column, (key, "lost", "95 % interval"))
    columns = (Column("queries by the new model", is_number=False), *heads)
    title = f"Roll-out: {key} for items in the guards"
    return Table(title, columns, tuple(groups), notes, is_ordered=True, name="roll-out")


def sentence(found: Sequence[RollOut], key: str) -> str:
    """Which choice is enough for a run and an index, on all guards, such as "the index can stay".

    A choice is enough where it was measured if no guard loses more than BOUND and than chance. It
    is not resolved if a loss may be above BOUND.
    """
    first = found[0]
    lost: dict[str, list[tuple[float, float, Interval | None]]] = {}  # points and their error
    for choice in CHOICES:
        losses = (one.loss(choice, key) for one in found)
        lost[choice] = [
            (one.drop.mean, one.interval.error if one.interval else 0.0, one.interval)
            for one in losses
            if one.drop is not None
        ]
    is_enough = {
        choice: all(mean <= max(BOUND, first.z * error) for mean, error, _ in known)
        for choice, known in lost.items()
        if known
    }
    shown, head = [KEEP, ALL], "it was not measured whether the index can stay"
    if is_enough.get(KEEP):
        may_lose = any(ends and mean + margin_of(error) > BOUND for mean, error, ends in lost[KEEP])
        head = "the index can stay" + (", not resolved" if may_lose else "")
        head += "" if is_enough.get(NEW, True) else _NOT_MIXED
        shown = [KEEP] if is_enough.get(NEW, True) else [KEEP, NEW]
    elif KEEP in is_enough:
        head = _REBUILD if is_enough.get(ALL, True) else NEITHER
    parts = []
    for choice in (one for one in shown if one in is_enough):
        mean, _, interval = max(lost[choice], key=lambda one: one[0])
        sign, verb, most = (1, "lose", "most") if mean >= 0 else (-1, "gain", "least")
        ends = interval and sorted((sign * interval.low, sign * interval.high))
        points = f"{verb}{f' at {most}' if len(found) > 1 else ''} {fixed(sign * mean)}"
        points += f" (95 % {' to '.join(map(fixed, ends))})" if ends else ""
        parts.append(f"{points} if {_IF[choice]}")
    details = f"; items in the guard {', '.join(parts)}" if parts else ""
    return f"{first.curve.run.name}, index by {first.index}: {head}{details}"
