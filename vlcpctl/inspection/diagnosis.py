"""Explain why a path is not an artifact, and what to give instead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from vlcpctl.core.errors import MOST_NAMES, BadInput
from vlcpctl.core.words import as_word
from vlcpctl.files.inputs import open_regular, parse_json, read_json
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.outputs import output_of, place_of
from vlcpctl.files.rows import FAMILY

NO_ARTIFACT = "is not an artifact, such as a stream, task, checkpoint or pseudo texts"
_LEVELS = 2  # of subdirectories searched for artifacts to suggest
_LEVELS_UP = 3  # of parent directories that may be the artifact a path is part of
_MOST_DIRECTORIES = 1000  # searched for artifacts to suggest
_ROW_BYTES = 1 << 20  # read of a file's first line


def why_no_artifact(path: Path) -> str | None:
    """The reason why `path` is not an artifact, and what to give instead, to follow "{path}: ".

    None if it is an artifact, even a damaged one.
    """
    if kind_of(path) is not None:
        return None
    if not path.exists():
        return "does not exist"
    return _why_no_file(path) if path.is_file() else _why_no_manifest(path)


def _why_no_file(path: Path) -> str:
    """The reason for a file."""
    with open_regular(path) as file:
        start = file.readline(_ROW_BYTES)
    if _is_row(start):
        return (
            f"contains evaluation rows; read them with 'vlcpctl forgetting-report {as_word(path)}'"
        )
    if not start.startswith(b"PAR1"):
        return _part_of(path) or NO_ARTIFACT
    advice = "if it contains image-text pairs, make a stream of them with 'vlcpctl split'"
    return _part_of(path) or f"{NO_ARTIFACT}; {advice}"


def _why_no_manifest(path: Path) -> str:
    """The reason for a directory without a manifest."""
    try:
        identity = read_json(path / "identity.json")
    except BadInput:
        identity = None
    made = output_of(path.parent)
    if made is not None and path.name == "partial" and isinstance(identity, dict):
        command = "train-step" if "semantic" in identity else "command"
        return (
            f"is the state of an unfinished {command}; run the same command again to finish {made}"
        )
    inside = list(_artifacts_in(path))
    if inside:
        more = [f"... {len(inside)} in all"] if len(inside) > MOST_NAMES else []
        names = " ".join([*map(str, inside[:MOST_NAMES]), *more])
        return f"has no manifest, so it is not an artifact; give one of: {names}"
    return _part_of(path) or f"has no manifest: it is unfinished, or {NO_ARTIFACT[3:]}"


def _is_row(line: bytes) -> bool:
    try:
        row = parse_json(line)
    except ValueError:
        return False
    return isinstance(row, dict) and str(row.get("schema")).startswith(FAMILY)


def _part_of(path: Path) -> str | None:
    """The reason for a path inside an artifact; None for any other path."""
    whole = place_of(path)
    for directory in whole.parents[:_LEVELS_UP]:
        kind = kind_of(directory)
        if kind is not None:
            shown = directory if path.is_absolute() else os.path.relpath(directory)
            return f"is part of the {kind} {shown}; give that path instead"
    return None


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
