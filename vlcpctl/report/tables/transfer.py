"""Tables of scores on data outside the stream: first and last step, and every one by data set."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vlcpctl.report.scores.runs import START, Track, TransferScores
from vlcpctl.report.scores.summary import Spread, over_seeds, seed_note
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
            (
                TableCell(_name(step)),
                *(
                    number_cell(over_seeds(seed.get(step) for seed in one.scores.get(key, ())))
                    for key in shown
                ),
            )
            for step in steps
        )
        groups.append(RowGroup(one.run, rows))
    seeds = seed_note([len(one.seeds) for one in members])
    more = [seeds] if seeds else []
    title = f"Transfer to {data}, every metric after every step"
    return Table(title, columns, tuple(groups), (*notes[:_FIRST], *more, _NOTE))


def _steps(transfer: TransferScores) -> list[int]:
    return sorted({step for seeds in transfer.scores.values() for one in seeds for step in one})


def _name(step: int) -> str:
    return "start" if step == START else f"after {step}"


def transfer_table(
    track: Track,
    key: str,
    left_out: Collection[tuple[str, str]] = (),
    order: Sequence[str] = (),
) -> Table | None:
    """Scores on data outside the stream at the first and last evaluated step; None without any.

    The runs and data in `left_out` are in another table; the runs of `order` come in that order.
    """
    rows = [
        row
        for transfer in track.transfers
        if (transfer.run, transfer.task) not in left_out
        if (row := _transfer_row(transfer, key))
    ]
    if not rows:
        return None
    columns = (
        Column("data", is_number=False),
        Column("run", is_number=False),
        Column("first step", rank=1),
        Column("score", rank=1),
        Column("last step"),
        Column("score"),
        Column("change"),
    )
    places = {name: place for place, name in enumerate(order)}
    rows.sort(key=lambda row: (row[0].text, places.get(row[1].text, len(places)), row[1].text))
    notes = ("not part of the stream, so not counted in any forgetting metric",)
    title = f"Transfer: {key} on data outside the stream"
    return Table(title, columns, (RowGroup("", tuple(rows)),), notes, name="transfer")


def _transfer_row(transfer: TransferScores, key: str) -> tuple[TableCell, ...] | None:
    by_step = transfer.scores.get(key, ())
    shared = set.intersection(*(set(scores) for scores in by_step)) if by_step else set()
    if not shared:
        return None
    first, last = min(shared), max(shared)
    before = Spread(tuple(scores[first] for scores in by_step))
    after = Spread(tuple(scores[last] for scores in by_step))
    change = Spread(tuple(scores[last] - scores[first] for scores in by_step))
    return (
        TableCell(transfer.task),
        TableCell(transfer.run),
        TableCell(_step_text(first)),
        number_cell(before),
        TableCell(_step_text(last)),
        number_cell(after),
        number_cell(change if first != last else None),
    )


def _step_text(step: int) -> str:
    return "start" if step == START else str(step)
