"""The table of the roll-out: whether an index may stay, grow, or has to be built again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vlcpctl.report.scores.drops import Drop
from vlcpctl.report.scores.roll_out import ALL, BOUND, CHOICES, KEEP, NEW, TODAY, RollOut
from vlcpctl.report.tables.guards import interval_cell
from vlcpctl.report.tables.table import (
    UNDEFINED,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
    number_cell,
)

_WORDS = {
    TODAY: "the old model on its index",
    KEEP: "keep the index: all items by the old model",
    NEW: "embed only new items: the others by the old model",
    ALL: "embed all: all items by the new model",
}
_IF = {KEEP: "the index stays", NEW: "only new items are embedded", ALL: "all items are embedded"}
_LOST = "lost: points against the old model on its index, in the same gallery; positive is worse"


def roll_out_table(found: Sequence[RollOut], key: str) -> Table | None:
    """A group for each run, guard and index, a row for today and each choice; None without any."""
    found = [one for one in found if any(one.score(choice, key) for choice in CHOICES)]
    if not found:
        return None
    columns = (
        Column("queries by the new model", is_number=False),
        Column(key),
        Column("lost"),
        Column("95 % interval"),
    )
    groups = tuple(
        RowGroup(
            f"{one.curve.run.name} on {one.data}, index by {one.index}", tuple(_rows(one, key))
        )
        for one in found
    )
    subjects = dict.fromkeys((one.curve.run.name, one.index) for one in found)
    said = [
        sentence([one for one in found if (one.curve.run.name, one.index) == subject], key)
        for subject in subjects
    ]
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
    lost_by = {one: _largest(found, one, key) for one in shown if one in is_enough}
    parts = [f"{_lost(one)} if {_IF[choice]}" for choice, one in lost_by.items()]
    most = "most " if len(found) > 1 else ""
    details = f"; {most}points lost, for items in the guard: {', '.join(parts)}" if parts else ""
    return f"{found[0].curve.run.name}, index by {found[0].index}: {head}{details}"


_REBUILD = "re-embed before you deploy"
NEITHER = "do not deploy, neither with this index nor with a new one"
_NOT_MIXED = ", but not with new items by the new model: embed these with the old one, or embed all"


def _largest(found: Iterable[RollOut], choice: str, key: str) -> tuple[float, Drop]:
    losses = (one.loss(choice, key) for one in found)
    return max(((one.drop.mean, one) for one in losses if one.drop), key=lambda pair: pair[0])


def _lost(largest: tuple[float, Drop]) -> str:
    """Such as "1.20 (95 % -0.30 to 2.70)"."""
    value, loss = largest
    return fixed(value) + (f" (95 % {interval_cell(loss).text})" if loss.interval else "")


def _rows(one: RollOut, key: str) -> Iterator[tuple[TableCell, ...]]:
    nothing = TableCell(UNDEFINED, is_faint=True)
    yield TableCell(_WORDS[TODAY]), number_cell(one.score(TODAY, key)), nothing, nothing
    for choice in CHOICES:
        loss = one.loss(choice, key)
        if choice == NEW and loss.last is None:
            continue  # there are no new items in this gallery
        cells = number_cell(loss.last), number_cell(loss.drop), interval_cell(loss)
        yield TableCell(_WORDS[choice]), *cells
