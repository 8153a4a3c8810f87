"""Tables of a run's task x step score matrix and of scores on data outside the stream."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vlcpctl.report.scores.runs import START, RunScores, Track, TransferScores
from vlcpctl.report.scores.summary import Spread, cell_spread, mean_matrix
from vlcpctl.report.tables.table import (
    UNDEFINED,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
    number_cell,
)


def matrix_table(run: RunScores, key: str, galleries: tuple[str, ...]) -> Table:
    """Scores of a run after each step (rows) on each task and the merged gallery (columns)."""
    columns = [Column("after step", is_number=False)]
    steps = range(run.steps - 1, run.steps) if run.final_only else range(run.steps)
    rows = [[TableCell(step_label(run, step))] for step in steps]
    forgotten = [TableCell("forgotten", is_faint=True)]
    if "own" in galleries and "own" in run.galleries:
        columns += [Column(str(task)) for task in range(len(run.tasks))]
        for step, row in zip(steps, rows, strict=True):
            row += [_own_cell(run, key, step, task) for task in range(len(run.tasks))]
        forgotten += [_forgotten(run, key, task) for task in range(len(run.tasks))]
    if "merged" in galleries and "merged" in run.galleries:
        columns.append(Column("merged"))
        for step, row in zip(steps, rows, strict=True):
            row.append(_cell(cell_spread(run, key, "merged", (step, step)), UNDEFINED))
        forgotten.append(TableCell(""))
    groups = [RowGroup("", tuple(tuple(row) for row in rows))]
    if len(rows) > 1 and "own" in galleries and "own" in run.galleries:
        groups.append(RowGroup("", (tuple(forgotten),)))
    seeds = f", mean of {len(run.seeds)} seeds" if len(run.seeds) > 1 else ""
    return Table(f"{run.name}: {key} by task{seeds}", tuple(columns), tuple(groups))


def step_label(run: RunScores, step: int) -> str:
    """The step and its task, such as "02 food"; a slug that starts with its number is kept."""
    name = run.tasks[step]
    return name if name.startswith(f"{step:02d}-") else f"{step:02d} {name}"


def own_means(run: RunScores, key: str, gallery: str = "own") -> np.ndarray:
    """(steps, tasks) own or merged matrix averaged over seeds; NaN where a seed lacks a cell."""
    if key not in run.scores:
        return np.full((run.steps, len(run.tasks)), np.nan)
    return mean_matrix([scores.of(gallery) for scores in run.scores[key]])


def _own_cell(run: RunScores, key: str, step: int, task: int) -> TableCell:
    spread = cell_spread(run, key, "own", (step, task))
    if task > step:
        return replace(_cell(spread, ""), is_faint=True)
    return replace(_cell(spread, UNDEFINED), is_strong=task == step)


def _cell(spread: Spread | None, absent: str) -> TableCell:
    return (
        TableCell(absent) if spread is None else TableCell(fixed(spread.mean, 1), value=spread.mean)
    )


def _forgotten(run: RunScores, key: str, task: int) -> TableCell:
    """Score just after learning minus score of the last model; empty for the last task."""
    if task >= run.steps - 1:
        return TableCell("")
    own = own_means(run, key)
    drop = float(own[task, task] - own[-1, task])
    return TableCell(UNDEFINED if math.isnan(drop) else fixed(drop, 1), is_faint=True)


def transfer_table(track: Track, key: str) -> Table | None:
    """Scores on data outside the stream at the first and last evaluated step; None without any."""
    rows = [row for transfer in track.transfers if (row := _transfer_row(transfer, key))]
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
    rows.sort(key=lambda row: (row[0].text, row[1].text))
    notes = ("not part of the stream, so not counted in any forgetting metric",)
    return Table(
        f"Transfer: {key} on data outside the stream", columns, (RowGroup("", tuple(rows)),), notes
    )


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
