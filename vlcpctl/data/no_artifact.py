"""Why a path is no artifact, and what to give instead: an answer for those who mistook it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.artifacts import kind_of
from vlcpctl.core.errors import MOST_NAMES
from vlcpctl.core.rows import SCHEMA
from vlcpctl.data.pseudo_texts import METADATA

NO_ARTIFACT = "is no artifact, such as a stream, task, checkpoint or file of pseudo texts"
_LEVELS = 2  # down to where artifacts are looked for in a directory that is none
_LEVELS_UP = 3  # to the directory that something may be a part of
_MOST_DIRECTORIES = 1000
_ROW_BYTES = 1 << 20  # of a file's first line


def why_no_artifact(path: Path) -> str | None:
    """What a path is and what to give instead; None for an artifact, though it be damaged."""
    if kind_of(path) is not None:
        return None
    if not path.exists():
        return "there is no such path"
    return _why_no_texts(path) if path.is_file() else _why_no_manifest(path)


def _why_no_texts(path: Path) -> str | None:
    """Of a file, which would be one of pseudo texts."""
    with path.open("rb") as file:
        start = file.readline(_ROW_BYTES)
    if not start.startswith(b"PAR1"):
        if _is_row(start):
            return f"holds evaluation rows, which 'vlcpctl forgetting-report {path}' reads"
        return _part_of(path) or NO_ARTIFACT
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return _part_of(path)
    if METADATA in metadata:
        return None
    pairs = f"{NO_ARTIFACT}; if it holds image-text pairs, 'vlcpctl split' makes a stream of them"
    return _part_of(path) or pairs


def _why_no_manifest(path: Path) -> str:
    """Of a directory."""
    try:
        identity = json.loads((path / "identity.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        identity = None
    staging = path.parent
    if staging.name.endswith(".vlcpctl") and path.name == "partial" and isinstance(identity, dict):
        command = "train-step" if "semantic" in identity else "command"
        made = staging.with_name(staging.name.removeprefix(".").removesuffix(".vlcpctl"))
        return f"is the state of an unfinished {command}; the same command resumes it, to {made}"
    inside = list(_artifacts_in(path))
    if inside:
        more = [f"... {len(inside)} in all"] if len(inside) > MOST_NAMES else []
        names = " ".join([*map(str, inside[:MOST_NAMES]), *more])
        return f"has no manifest, so it is no artifact; give one of: {names}"
    return _part_of(path) or f"has no manifest: it is unfinished, or {NO_ARTIFACT[3:]}"


def _is_row(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and row.get("schema") == SCHEMA


def _part_of(path: Path) -> str | None:
    """The artifact that something lies in."""
    whole = Path(os.path.abspath(path))
    for directory in whole.parents[:_LEVELS_UP]:
        kind = kind_of(directory)
        if kind is not None:
            shown = directory if path.is_absolute() else os.path.relpath(directory)
            return f"is a part of the {kind} {shown}; give that"
    return None


def _artifacts_in(top: Path) -> Iterator[Path]:
    """Those inside a directory, but not those inside of them."""
    walk = os.walk(top)
    for name, below, _ in islice(walk, _MOST_DIRECTORIES):
        place = Path(name)
        if place != top and kind_of(place) is not None:
            yield place
            below.clear()
        is_deep = len(place.relative_to(top).parts) >= _LEVELS
        below[:] = [] if is_deep else sorted(one for one in below if not one.startswith("."))
