"""What a reader must know before comparing: unfinished runs, different streams, missing cells."""

from __future__ import annotations

from collections.abc import Iterable

from vlcpctl.report.missing import missing_cells
from vlcpctl.report.runs import Track


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
