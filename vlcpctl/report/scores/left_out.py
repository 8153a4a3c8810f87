"""Tasks that do not count in summary metrics, as `--without` names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.core.printable import printable
from vlcpctl.report.scores.runs import RunScores, Track


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


def note_of(tracks: Sequence[Track]) -> list[str]:
    """A sentence on the tasks that do not count; none if all do."""
    names = dict.fromkeys(
        run.tasks[place] for track in tracks for run in track.runs for place in sorted(run.without)
    )
    return [f"metrics over all tasks leave out {some_names(list(names))} (--without)"] * bool(names)
