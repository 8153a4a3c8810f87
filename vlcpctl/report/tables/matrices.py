"""The table of a run's task x step score matrix."""

from __future__ import annotations

import math

import numpy as np

from vlcpctl.report.scores.joining import number_of, padded
from vlcpctl.report.scores.runs import START, RunScores
from vlcpctl.report.scores.summary import Spread, cell_spread, mean_matrix
from vlcpctl.report.tables.table import (
    UNDEFINED,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
)

MOST_SHOWN = 100  # steps, and tasks, that the matrices of a report show
_BLANK = TableCell("", is_faint=True)


def matrix_table(
    run: RunScores, key: str, galleries: tuple[str, ...], most: int = MOST_SHOWN
) -> Table:
    """Scores of a run after each step (rows) on each task and the merged gallery (columns).

    The first row is the model before the first task, if it was evaluated. Of a long run, at most
    `most` steps and tasks are shown.
    """
    columns = [Column("after task", is_number=False)]
    tasks = shown_tasks(run, most)
    steps = [run.steps - 1] if run.final_only else shown_steps(run, most)
    steps = [START, *steps] if "own" in galleries and has_start(run) else steps
    rows = [[TableCell(step_label(run, step))] for step in steps]
    forgotten = [TableCell("forgotten", is_faint=True)]
    if "own" in galleries and "own" in run.galleries:
        columns += [Column(str(task)) for task in tasks]
        means = _means(run, key, steps, tasks)
        for step, row, of_step in zip(steps, rows, means, strict=True):
            row += [_own_cell(step, *pair) for pair in zip(tasks, of_step, strict=True)]
        forgotten += _forgotten(run, key, tasks)
    if "merged" in galleries and "merged" in run.galleries:
        columns.append(Column("merged"))
        for step, row in zip(steps, rows, strict=True):
            spread = None if step == START else cell_spread(run, key, "merged", (step, step))
            row.append(_cell(spread, "" if step == START else UNDEFINED))
        forgotten.append(TableCell(""))
    groups = [RowGroup("", tuple(tuple(row) for row in rows))]
    is_forgotten = sum(step != START for step in steps) > 1
    if is_forgotten and "own" in galleries and "own" in run.galleries:
        groups.append(RowGroup("", (tuple(forgotten),)))
    seeds = f", mean of {len(run.seeds)} seeds" if len(run.seeds) > 1 else ""
    title = f"{run.name}: {key} of each task (columns) after each task (rows){seeds}"
    return Table(title, tuple(columns), tuple(groups), cut_notes(run, most))


def shown_steps(run: RunScores, most: int = MOST_SHOWN) -> list[int]:
    """The steps that matrices show: all or --recent, or of a long run some that have scores."""
    return _shown(run, run.steps, most, axis=1)


def shown_tasks(run: RunScores, most: int = MOST_SHOWN) -> list[int]:
    """The tasks that matrices show: all or --recent, or of a long run some that have scores."""
    found = _shown(run, len(run.tasks), most, axis=0)
    return [task for task in found if task not in run.unmeasured]


def _shown(run: RunScores, count: int, most: int, axis: int) -> list[int]:
    first = run.first_shown
    if count - first <= most:
        return list(range(first, count))
    has_scores = np.zeros(count, dtype=np.bool_)
    for scores in (one for per_seed in run.scores.values() for one in per_seed):
        for matrix in (scores.own, scores.merged):
            has_scores |= ~np.isnan(matrix).all(axis=axis)
        if axis == 0:
            has_scores |= ~np.isnan(scores.start)
    found = np.flatnonzero(has_scores[first:]) + first
    if len(found) > most:
        found = found[np.linspace(0, len(found) - 1, most).round().astype(int)]
    return [int(place) for place in found]


def cut_notes(run: RunScores, most: int = MOST_SHOWN) -> tuple[str, ...]:
    """What a matrix of a long run leaves out; empty for any other."""
    steps, tasks = len(shown_steps(run, most)), len(shown_tasks(run, most))
    if run.final_only or (steps == run.steps and tasks == len(run.tasks)):
        return ()
    return (f"shows {steps} of {run.steps} steps and {tasks} of {len(run.tasks)} tasks",)


def has_start(run: RunScores) -> bool:
    """Whether the model before the first task was evaluated on any task."""
    return any(
        not np.isnan(scores.start).all() for per_seed in run.scores.values() for scores in per_seed
    )


def start_means(run: RunScores, key: str) -> np.ndarray:
    """(tasks,) scores of the model before the first task, averaged over seeds; NaN if unknown."""
    if key not in run.scores:
        return np.full(len(run.tasks), np.nan)
    mean: np.ndarray = np.mean([scores.start for scores in run.scores[key]], axis=0)
    return mean


def step_label(run: RunScores, step: int) -> str:
    """The step and its task, such as "02 food"; a slug that starts with its number is kept.

    All labels of a run have as many digits, so that they sort.
    """
    if step == START:
        return "start"
    name, digits = run.tasks[step], max(2, len(str(len(run.tasks) - 1)))
    is_numbered = number_of(name, step) is not None
    return padded(name, step, digits) if is_numbered else f"{step:0{digits}d} {name}"


def own_means(run: RunScores, key: str, gallery: str = "own") -> np.ndarray:
    """(steps, tasks) own or merged matrix averaged over seeds; NaN where a seed lacks a cell."""
    if key not in run.scores:
        return np.full((run.steps, len(run.tasks)), np.nan)
    return mean_matrix([scores.of(gallery) for scores in run.scores[key]])


def _means(run: RunScores, key: str, steps: list[int], tasks: list[int]) -> list[list[float]]:
    """For each step (or START) and task the mean over seeds, NaN where a seed lacks the score."""
    of_seeds = run.scores.get(key, ())
    if not of_seeds:
        return [[math.nan] * len(tasks)] * len(steps)
    if len(of_seeds) == 1:
        own = of_seeds[0].of("start")  # START is its first row
        found: list[list[float]] = own[np.ix_([step + 1 for step in steps], tasks)].tolist()
        return found
    start = start_means(run, key)
    cells = [one.own[np.ix_([max(step, 0) for step in steps], tasks)].tolist() for one in of_seeds]
    # fsum, as of every mean over seeds: numpy's may differ in the last digit.
    return [
        start[tasks].tolist()
        if step == START
        else [math.fsum(values) / len(of_seeds) for values in zip(*rows, strict=True)]
        for step, *rows in zip(steps, *cells, strict=True)
    ]


def _own_cell(step: int, task: int, mean: float) -> TableCell:
    is_learned = task <= step  # START is below all tasks
    if math.isnan(mean):
        return TableCell(UNDEFINED, is_strong=task == step) if is_learned else _BLANK
    return TableCell(fixed(mean, 1), value=mean, is_strong=task == step, is_faint=not is_learned)


def _cell(
    spread: Spread | None, absent: str, *, is_faint: bool = False, is_strong: bool = False
) -> TableCell:
    if spread is None:
        return TableCell(absent, is_faint=is_faint, is_strong=is_strong)
    mean = spread.mean
    return TableCell(fixed(mean, 1), value=mean, is_faint=is_faint, is_strong=is_strong)


def _forgotten(run: RunScores, key: str, tasks: list[int]) -> list[TableCell]:
    """Score just after learning minus score of the last model; empty for the last task."""
    own = own_means(run, key)
    cells = []
    for task in tasks:
        is_learned = task < run.steps - 1
        drop = float(own[task, task] - own[-1, task]) if is_learned else math.nan
        text = UNDEFINED if math.isnan(drop) else fixed(drop, 1)
        cells.append(TableCell(text, is_faint=True) if is_learned else TableCell(""))
    return cells
