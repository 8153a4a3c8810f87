"""What each task lost: learned, final, forgotten and DHA's rate, by direction of retrieval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.metrics.forgetting import NOTHING, Matrix
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.scores.summary import Spread, over_seeds, seed_note, summarise
from vlcpctl.report.tables.matrices import cut_notes, shown_tasks, step_label
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell, number_cell

# The R@mean of each direction and of both, under the names of the papers.
_DIRECTIONS = {"i2t_rmean": "i2t R@mean", "t2i_rmean": "t2i R@mean", "rm": "both, R@mean"}
MEASURES = ("learned", "final", "forgotten", "fr_dha")
_WHOLE = ("own_learned", "own_final", "", "fr_dha")  # the same over all tasks
_MOST_CELLS = 12_000  # of all these tables of a track
_NOTES = (
    "learned: just after its task; final: the last model",
    "forgotten: learned minus final, in points; fr_dha: the same in percent of learned",
    "mean: over all tasks, forgotten and fr_dha over those before the last",
)

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class TaskLosses:
    """One metric key of a run, per task and seed, all (seeds, tasks); NaN where undefined."""

    learned: Numbers
    final: Numbers

    @property
    def forgotten(self) -> Numbers:
        """What was lost since the task was learned; NaN for the last task."""
        lost: Numbers = self.learned - self.final
        lost[:, -1] = math.nan
        return lost

    @property
    def fr_dha(self) -> Numbers:
        """The same in percent of what was learned; NaN where that is nothing."""
        rate = np.full(self.learned.shape, math.nan)
        np.divide(100 * self.forgotten, self.learned, out=rate, where=self.learned > NOTHING)
        return rate

    def of(self, measure: str) -> Numbers:
        """One of learned, final, forgotten and fr_dha."""
        found: Numbers = getattr(self, measure)
        return found


def losses(run: RunScores, key: str) -> TaskLosses | None:
    """What a run lost in a metric, for the tasks it has learned; None without own galleries."""
    if not run.steps or "own" not in run.galleries or key not in run.scores:
        return None
    own: list[Matrix] = [one.own[:, : run.steps] for one in run.scores[key]]
    learned = np.stack([matrix.diagonal() for matrix in own])
    return TaskLosses(learned, np.stack([matrix[-1] for matrix in own]))


def direction_keys(track: Track, key: str) -> tuple[str, ...]:
    """The metric keys of both directions of retrieval and their mean, or `key` alone."""
    found = tuple(name for name in _DIRECTIONS if name in track.keys)
    return found if len(found) > 1 else (key,)


def per_task_tables(track: Track, key: str, runs: Sequence[RunScores]) -> list[Table]:
    """A table for each run evaluated on own galleries after several steps, tasks by direction.

    Of many runs of many tasks only the first have a table; the note of the last one says so.
    """
    keys = direction_keys(track, key)
    shown = [run for run in runs if run.steps > 1 and not run.final_only]
    tables = [(run, losses(run, keys[0])) for run in shown]
    known = [run for run, found in tables if found is not None]
    cells = 0
    made: list[Table] = []
    for run in known:
        cells += len(_tasks(run)) * len(keys) * len(MEASURES)
        if made and cells > _MOST_CELLS:
            break
        made.append(_table(run, keys))
    if made and len(made) < len(known):
        last = made[-1]
        note = f"shows {len(made)} of {len(known)} runs; summary.json has all"
        made[-1] = Table(last.title, last.columns, last.groups, (*last.notes, note))
    return made


def _tasks(run: RunScores) -> list[int]:
    return [task for task in shown_tasks(run) if task < run.steps]


def _table(run: RunScores, keys: Sequence[str]) -> Table:
    columns = [Column("task", is_number=False)]
    rows = [[TableCell(step_label(run, task))] for task in _tasks(run)]
    mean = [TableCell("mean", is_strong=True)]
    for key in keys:
        over = _DIRECTIONS.get(key, key)
        columns += [Column(name, over=over) for name in MEASURES]
        found = losses(run, key)
        for task, row in zip(_tasks(run), rows, strict=True):
            row += [number_cell(_spread(found, name, task)) for name in MEASURES]
        mean += [_mean_cell(run, key, name, found) for name in _WHOLE]
    groups = (RowGroup("", tuple(map(tuple, rows))), RowGroup("", (tuple(mean),)))
    seeds = seed_note([len(run.seeds)])
    notes = (*cut_notes(run), *([seeds] if seeds else []), *_NOTES)
    return Table(f"{run.name}: forgetting by task", tuple(columns), groups, notes)


def _spread(found: TaskLosses | None, measure: str, task: int) -> Spread | None:
    return None if found is None else over_seeds(found.of(measure)[:, task].tolist())


def _mean_cell(run: RunScores, key: str, name: str, found: TaskLosses | None) -> TableCell:
    """A summary metric, or without a name the mean of what was forgotten."""
    if name:
        return number_cell(summarise(run, key, name))
    return number_cell(
        None if found is None else over_seeds(found.forgotten[:, :-1].mean(axis=1).tolist())
    )
