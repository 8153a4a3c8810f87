"""Cells that score matrices lack, tasks that do not count, and notes about both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.core.words import printable
from vlcpctl.metrics.forgetting import Matrix
from vlcpctl.report.scores.runs import RunScores, SeedScores, Track

_SHOWN = 6  # cells named in a message before "and N more"


def require_complete(track: Track) -> None:
    """Raise BadInput, naming the missing cells, if a run of the track is incomplete."""
    complaints = missing_cells(track)
    if complaints:
        said = "; ".join(complaints[:_SHOWN])
        more = f"; and {len(complaints) - _SHOWN} more" if len(complaints) > _SHOWN else ""
        raise BadInput(
            f"{printable(f'{track.title}: {said}')}{more}; evaluate them, or use --allow-missing "
            "to leave the metrics that need them undefined"
        )


def missing_cells(track: Track) -> list[str]:
    """A phrase per run and set of missing cells, naming the seeds and metrics that lack them."""
    return [phrase for run in track.runs for phrase in _of_run(run)]


def _of_run(run: RunScores) -> list[str]:
    lacking: dict[str, tuple[list[int], list[str]]] = {}  # cells: seeds and metrics without them
    measured = _measured(run)
    for key, per_seed in run.scores.items():
        # A metric that no row has although the task has rows, such as acc5 of four classes.
        unmeasured = ~measured[key] & np.any(list(measured.values()), axis=0)
        for seed, scores in zip(run.seeds, per_seed, strict=True):
            cells = _absent_cells(run, scores, unmeasured)
            if cells:
                seeds, keys = lacking.setdefault(cells, ([], []))
                seeds += [] if seed in seeds else [seed]
                keys += [] if key in keys else [key]
    return [
        f"run {run.name!r} seed {', '.join(map(str, seeds))} "
        f"has no {'row' if len(keys) == len(run.scores) else ', '.join(keys)} at {cells}"
        for cells, (seeds, keys) in lacking.items()
    ]


def _measured(run: RunScores) -> dict[str, NDArray[np.bool_]]:
    """By metric: (tasks,) whether any row has it."""
    return {
        key: np.any(
            [
                ~np.isnan(matrix).all(axis=0)
                for scores in per_seed
                for matrix in (scores.own, scores.merged)
            ],
            axis=0,
        )
        for key, per_seed in run.scores.items()
    }


def _absent_cells(run: RunScores, scores: SeedScores, unmeasured: NDArray[np.bool_]) -> str:
    """The cells that are needed and are NaN, the first few of them by name; empty without any."""
    names: list[str] = []
    count = 0
    for gallery, needed in (("own", _own_needed), ("merged", _merged_needed)):
        if gallery in run.galleries and run.steps:
            matrix = scores.of(gallery)
            holes = np.isnan(matrix) & needed(run, matrix) & ~unmeasured
            holes[:, list(run.without)] = False
            count += int(holes.sum())
            for step, task in np.argwhere(holes)[:_SHOWN].tolist():
                name = run.tasks[task] if gallery == "own" else f"merged 0..{task}"
                names.append(f"(step {step}, {name})")
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _own_needed(run: RunScores, own: Matrix) -> NDArray[np.bool_]:
    """(steps, tasks): tasks up to each step; of a run evaluated at its last step, only there."""
    needed: NDArray[np.bool_] = np.tri(*own.shape, dtype=np.bool_)
    needed[: run.steps - 1] &= not run.final_only
    return needed


def _merged_needed(run: RunScores, merged: Matrix) -> NDArray[np.bool_]:
    """(steps, tasks): the diagonal; the last row, for bwt_ctp, if any other cell of it is there."""
    last = run.steps - 1
    needed: NDArray[np.bool_] = np.eye(*merged.shape, dtype=np.bool_)
    if run.final_only:
        needed[:last] = False
    elif not np.all(np.isnan(merged[last, :last])):
        needed[last, :last] = True
    return needed


def notes(tracks: Sequence[Track]) -> tuple[str, ...]:
    """The notes of a report, one sentence each, without duplicates."""
    left_out = dict.fromkeys(
        run.tasks[place]
        for track in tracks
        for run in track.runs
        for place in sorted(run.without - run.unmeasured)
    )
    unmeasured = dict.fromkeys(
        run.tasks[place]
        for track in tracks
        for run in track.runs
        for place in sorted(run.unmeasured)
    )
    found = []
    if unmeasured:
        found.append(
            f"no run was evaluated on {some_names(list(unmeasured))}: metrics over all tasks leave "
            "out what no run has"
        )
    if left_out:
        found.append(f"metrics over all tasks leave out {some_names(list(left_out))} (--without)")
    for track in tracks:
        found += [
            f"{track.title}: {complaint}; metrics that need it are undefined"
            for complaint in missing_cells(track)
        ]
        found += _unequal(track)
    return tuple(dict.fromkeys(found))


def _unequal(track: Track) -> list[str]:
    found = []
    trained = [run for run in track.runs if run.steps]
    longest = max((run.steps for run in trained), default=0)
    found += [
        f"run {run.name!r} has {run.steps} of {longest} steps: its numbers are not comparable yet"
        for run in trained
        if run.steps < longest
    ]
    full = {run.tasks[:longest]: run.name for run in trained if run.steps == longest}
    if len(full) > 1:
        names = " and ".join(repr(name) for name in full.values())
        found.append(
            f"runs {names} were trained on different tasks or in another order: "
            "compare them with care"
        )
    return found


def without_tasks(tracks: Sequence[Track], globs: Sequence[str]) -> tuple[Track, ...]:
    """The tracks, with the tasks of their runs that match a pattern marked as not counted.

    Raises UsageError for a pattern that matches no task, and BadInput if it matches the last task
    that a run has learned: its last model would not count, either.
    """
    tasks = dict.fromkeys(task for track in tracks for run in track.runs for task in run.tasks)
    for glob in globs:
        if not any(fnmatchcase(task, glob) for task in tasks):
            raise UsageError(f"--without {glob} matches no task (found: {some_names(list(tasks))})")
    return tuple(
        replace(track, runs=tuple(_marked(run, globs) for run in track.runs)) for track in tracks
    )


def without_unmeasured(tracks: Sequence[Track]) -> tuple[Track, ...]:
    """The tracks, with the tasks that no run was evaluated on marked as not counted.

    For --allow-missing: a task that one run alone lacks still leaves its metrics undefined.
    """
    return tuple(_without_unmeasured(track) for track in tracks)


def _without_unmeasured(track: Track) -> Track:
    learned = [run for run in track.runs if run.steps and "own" in run.galleries]
    last = {run.steps - 1 for run in learned}
    known = set().union(*(_own_columns(run) for run in learned)) if learned else set()
    tasks = range(max((run.steps for run in learned), default=0))
    lacking = frozenset(task for task in tasks if task not in known | last)
    if not lacking or not known:
        return track
    runs = []
    for run in track.runs:
        own = lacking & set(range(run.steps - 1))  # of those that it has learned, not the last
        runs.append(replace(run, without=run.without | own, unmeasured=own))
    return replace(track, runs=tuple(runs))


def _own_columns(run: RunScores) -> set[int]:
    """The tasks that any model of a run was evaluated on."""
    columns: set[int] = set()
    for scores in (one for of_key in run.scores.values() for one in of_key):
        columns |= set(np.flatnonzero(~np.isnan(scores.own).all(axis=0)).tolist())
    return columns


def _marked(run: RunScores, globs: Sequence[str]) -> RunScores:
    found = {
        place
        for place, task in enumerate(run.tasks)
        if any(fnmatchcase(task, glob) for glob in globs)
    }
    if run.steps - 1 in found:
        raise BadInput(
            f"--without names {printable(run.tasks[run.steps - 1])}, the last task that run "
            f"{run.name!r} has learned; leave out earlier tasks only"
        )
    return replace(run, without=frozenset(found))
