"""Tables of scores on data outside the stream: every metric, after every step, by data set."""

from __future__ import annotations

from collections.abc import Sequence

from vlcpctl.report.scores.ahead import seed_note
from vlcpctl.report.scores.runs import START, Track, TransferScores
from vlcpctl.report.scores.summary import Spread
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell, number_cell

_MOST_CELLS = 12_000  # of all these tables of a track
_FIRST, _LAST = 3, 7  # steps of a run that are shown where there are too many
_NOTE = (
    "after N: the model after step N; start: the model before the first task; these data are not "
    "part of the stream and count in no metric of forgetting"
)


def every_step_tables(track: Track) -> list[Table]:
    """A table for each data set outside the stream: a line for each run and step, all metrics.

    Runs of many steps show their first and last ones if the whole would be too long for a page,
    and if that does not suffice, only the first data sets have a table.
    """
    by_data: dict[str, list[TransferScores]] = {}
    for one in track.transfers:
        by_data.setdefault(one.task, []).append(one)
    is_cut = sum(len(_steps(one)) * len(one.scores) for one in track.transfers) > _MOST_CELLS
    tables: list[Table] = []
    cells = 0
    for data, members in sorted(by_data.items()):
        table = _table(data, members, track.keys, is_cut=is_cut)
        cells += sum(len(group.rows) for group in table.groups) * len(table.columns)
        if tables and cells > _MOST_CELLS:
            return [*tables[:-1], _with_note(tables[-1], len(tables), len(by_data))]
        tables.append(table)
    return tables


def _with_note(table: Table, shown: int, every: int) -> Table:
    note = f"shows {shown} of {every} data sets; summary.json has all"
    return Table(table.title, table.columns, table.groups, (*table.notes, note))


def _table(
    data: str, members: Sequence[TransferScores], keys: Sequence[str], *, is_cut: bool
) -> Table:
    shown = [key for key in keys if any(key in one.scores for one in members)]
    columns = (Column("model", is_number=False), *(Column(key) for key in shown))
    groups, notes = [], []
    for one in members:
        steps = _steps(one)
        if is_cut and len(steps) > _FIRST + _LAST:
            notes.append(f"{one.run}: shows {_FIRST + _LAST} of {len(steps)} steps")
            steps = [*steps[:_FIRST], *steps[-_LAST:]]
        rows = tuple(
            (TableCell(_name(step)), *(number_cell(_at(one, key, step)) for key in shown))
            for step in steps
        )
        groups.append(RowGroup(one.run, rows))
    seeds = seed_note([len(one.seeds) for one in members])
    more = [seeds] if seeds else []
    title = f"Transfer to {data}, every metric after every step"
    return Table(title, columns, tuple(groups), (*notes[:_FIRST], *more, _NOTE))


def _steps(transfer: TransferScores) -> list[int]:
    return sorted({step for seeds in transfer.scores.values() for one in seeds for step in one})


def _at(transfer: TransferScores, key: str, step: int) -> Spread | None:
    """The scores of every seed after a step; None if one lacks it."""
    values = [one.get(step) for one in transfer.scores.get(key, ())]
    known = tuple(value for value in values if value is not None)
    return Spread(known) if known and len(known) == len(values) else None


def _name(step: int) -> str:
    return "start" if step == START else f"after {step}"
