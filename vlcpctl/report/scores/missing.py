"""The missing cells of a run's score matrices, and other notes to read before comparing runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from vlcpctl.core.errors import BadInput
from vlcpctl.metrics.forgetting import Matrix
from vlcpctl.report.scores.runs import RunScores, SeedScores, Track

_SHOWN = 6  # cells named in a message before "and N more"


def require_complete(track: Track) -> None:
    """Raise BadInput, naming the missing cells, if a run of the track is incomplete."""
    complaints = missing_cells(track)
    if complaints:
        raise BadInput(
            f"{track.title}: {'; '.join(complaints)}; evaluate them, or use --allow-missing "
            "to leave the metrics that need them undefined"
        )


def missing_cells(track: Track) -> list[str]:
    """A phrase per run and set of missing cells, naming the seeds and metrics that lack them."""
    return [phrase for run in track.runs for phrase in _of_run(run)]


def _of_run(run: RunScores) -> list[str]:
    lacking: dict[str, tuple[list[int], list[str]]] = {}  # cells: seeds and metrics without them
    unmeasured = _unmeasured(run)
    for key, per_seed in run.scores.items():
        for seed, scores in zip(run.seeds, per_seed, strict=True):
            cells = [cell for cell in _absent(run, scores) if (key, cell[2]) not in unmeasured]
            if cells:
                seeds, keys = lacking.setdefault(_named(run, cells), ([], []))
                seeds += [] if seed in seeds else [seed]
                keys += [] if key in keys else [key]
    return [
        f"run {run.name!r} seed {', '.join(map(str, seeds))} "
        f"has no {'row' if len(keys) == len(run.scores) else ', '.join(keys)} at {cells}"
        for cells, (seeds, keys) in lacking.items()
    ]


def _unmeasured(run: RunScores) -> set[tuple[str, int]]:
    """(metric, task) that no row has although the task has rows, such as acc5 of four classes."""
    measured = {
        (key, int(task))
        for key, per_seed in run.scores.items()
        for scores in per_seed
        for matrix in (scores.own, scores.merged)
        for task in np.flatnonzero(~np.isnan(matrix).all(axis=0))
    }
    tasks = {task for _, task in measured}
    return {(key, task) for key in run.scores for task in tasks} - measured


def _absent(run: RunScores, scores: SeedScores) -> Iterator[tuple[str, int, int]]:
    """Gallery, step and task of each cell that is needed and is NaN."""
    if "own" in run.galleries:
        yield from (("own", *cell) for cell in _holes(scores.own, _own_needed(run)))
    if "merged" in run.galleries:
        yield from (
            ("merged", *cell) for cell in _holes(scores.merged, _merged_needed(run, scores))
        )


def _holes(matrix: Matrix, needed: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [cell for cell in needed if np.isnan(matrix[cell])]


def _own_needed(run: RunScores) -> list[tuple[int, int]]:
    last = run.steps - 1
    steps = [last] if run.final_only else range(run.steps)
    return [(step, task) for step in steps for task in range(step + 1)]


def _merged_needed(run: RunScores, scores: SeedScores) -> list[tuple[int, int]]:
    """The diagonal, and the last row, which bwt_ctp needs, if any other cell of it is there."""
    last = run.steps - 1
    if last < 0:
        return []
    if run.final_only:
        return [(last, last)]
    diagonal = [(step, step) for step in range(run.steps)]
    has_last_row = not np.all(np.isnan(scores.merged[last, :last]))
    return diagonal + ([(last, task) for task in range(last)] if has_last_row else [])


def _named(run: RunScores, cells: list[tuple[str, int, int]]) -> str:
    names = [
        f"(step {step}, {run.tasks[task] if gallery == 'own' else f'merged 0..{task}'})"
        for gallery, step, task in cells[:_SHOWN]
    ]
    more = f" and {len(cells) - _SHOWN} more" if len(cells) > _SHOWN else ""
    return ", ".join(names) + more


def notes(tracks: Iterable[Track]) -> tuple[str, ...]:
    """The notes of a report, one sentence each, without duplicates."""
    found = []
    for track in tracks:
        found += _missing(track) + _unequal(track)
    return tuple(dict.fromkeys(found))


def _missing(track: Track) -> list[str]:
    return [
        f"{track.title}: {complaint}; metrics that need it are undefined"
        for complaint in missing_cells(track)
    ]


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
