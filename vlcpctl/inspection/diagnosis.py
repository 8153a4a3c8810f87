"""Explain why a path is not an artifact, and what to give instead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from vlcpctl.core.errors import MOST_NAMES
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.outputs import output_of

NO_ARTIFACT = "is not an artifact, such as a stream, task, checkpoint or pseudo texts"
_LEVELS = 2  # of subdirectories searched for artifacts to suggest
_MOST_DIRECTORIES = 1000  # likewise


def why_no_artifact(path: Path) -> str | None:
    """The reason why `path` is not an artifact, and what to give instead, to follow "{path}: ".

    None if it is an artifact, even a damaged one.
    """
    if kind_of(path) is not None:
        return None
    if not path.exists():
        return "does not exist"
    if not path.is_dir():
        return f"{NO_ARTIFACT}; of data give --pairs, and evaluation rows to forgetting-report"
    made = output_of(path.parent)
    if made is not None and path.name == "partial":
        return f"is the state of unfinished work; run the same command again to finish {made}"
    inside = list(_artifacts_in(path))
    if inside:
        more = [f"... {len(inside)} in all"] if len(inside) > MOST_NAMES else []
        names = " ".join([*map(str, inside[:MOST_NAMES]), *more])
        return f"has no manifest, so it is not an artifact; give one of: {names}"
    return f"has no manifest: it is unfinished, or {NO_ARTIFACT[3:]}"


def _artifacts_in(top: Path) -> Iterator[Path]:
    """The artifacts inside a directory, without those inside another artifact."""
    walk = os.walk(top)
    for name, below, _ in islice(walk, _MOST_DIRECTORIES):
        place = Path(name)
        if place != top and kind_of(place) is not None:
            yield place
            below.clear()
        is_deep = len(place.relative_to(top).parts) >= _LEVELS
        below[:] = [] if is_deep else sorted(one for one in below if not one.startswith("."))
