"""Find checkpoints in directories, by content id; the search is bounded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.files.manifest import MANIFESTS, kind_of, with_article

LEVELS = 4  # of subdirectories below a given directory
MOST_DIRECTORIES = 100_000  # looked at below a given directory

_MANIFEST = MANIFESTS["checkpoint"]


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint and where it is."""

    path: Path
    manifest: CheckpointManifest


def find_checkpoints(paths: Sequence[Path]) -> tuple[dict[str, FoundCheckpoint], list[str]]:
    """The checkpoints at these paths by content id, and notes about what could not be read.

    A path is a checkpoint, or a directory that is searched LEVELS levels deep. Of two copies, the
    first is used. Raises BadInput if a path does not exist, is another artifact, or has no
    checkpoint below it.
    """
    found: dict[str, FoundCheckpoint] = {}
    notes: list[str] = []
    for path in dict.fromkeys(paths):
        places = list(islice(_checkpoints_below(path), MOST_DIRECTORIES + 1))
        if len(places) > MOST_DIRECTORIES:
            raise BadInput(
                f"{path} has more than {MOST_DIRECTORIES} directories; "
                "give the directories of the runs instead"
            )
        places = [place for place in places if (place / _MANIFEST).is_file()]
        if not places:
            raise BadInput(_none_at(path))
        for place in places:
            try:
                made = CheckpointManifest.read(place)
            except BadInput as error:
                # Its own path alone: a report must not depend on where its inputs are.
                name = place.relative_to(path) if place != path else Path(path.name)
                reason = str(error).replace(str(place), str(name))
                notes.append(f"--checkpoint: a checkpoint was left out: {reason}")
                continue
            found.setdefault(made.content, FoundCheckpoint(place, made))
    return found, notes


def _none_at(path: Path) -> str:
    kind = kind_of(path)
    if kind is not None:
        return f"{path} is not a checkpoint, it is {with_article(kind)}"
    return (
        f"{path} has no checkpoint in it, searched {LEVELS} levels deep; "
        "give the directory of a run, or a checkpoint"
    )


def _checkpoints_below(top: Path) -> Iterator[Path]:
    """The directories to look at, sorted; not those inside of artifacts, or that are hidden."""

    def refuse(error: OSError) -> None:
        if error.filename == str(top):
            raise BadInput(unreadable(top, error)) from error

    for name, below, _ in os.walk(top, onerror=refuse):
        place = Path(name)
        yield place
        is_deep = len(place.relative_to(top).parts) >= LEVELS
        stops = is_deep or kind_of(place) is not None
        below[:] = [] if stops else sorted(one for one in below if not one.startswith("."))
