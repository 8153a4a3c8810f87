"""Check a checkpoint for damage: the files it lists, and the layout of every safetensors file."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlcpctl.core.hashing import file_sha256
from vlcpctl.core.manifest import read_manifest

_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors format


def check_checkpoint(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a checkpoint; `deep` hashes its files.

    Raises BadInput if the manifest cannot be read.
    """
    listed: dict[str, str] = read_manifest(path, "checkpoint").get("files", {})
    for name, sha256 in sorted(listed.items()):
        file = path / name
        if not file.is_file():
            yield f"{file}: is missing"
        elif deep and file_sha256(file) != sha256:
            yield f"{file}: is not the file listed in checkpoint.json (its sha256 differs)"
    for file in sorted(path.rglob("*.safetensors")):
        problem = _problem_of(file)
        if problem:
            yield f"{file}: {problem}"


def _problem_of(path: Path) -> str | None:
    """What is wrong with a safetensors file according to its header, or None."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return "is truncated: shorter than the 8 bytes that give the length of its header"
        (length,) = struct.unpack("<Q", start)
        if length > min(_MAX_HEADER, size - 8):
            return f"declares a header of {length} bytes; it is truncated or not a safetensors file"
        try:
            tensors = json.loads(file.read(length))
        except ValueError:
            return "has a header that is not JSON"
    if not isinstance(tensors, dict):
        return "has a header that does not list tensors"
    return _gap(tensors, size - 8 - length)


def _gap(tensors: dict[str, Any], size: int) -> str | None:
    """What is wrong if the tensors do not fill the file's data exactly, or None."""
    try:
        places = sorted(
            tuple(entry["data_offsets"])
            for name, entry in tensors.items()
            if name != "__metadata__"
        )
    except (KeyError, TypeError):
        return "has a tensor without data offsets"
    at = 0
    for start, end in places:
        if start != at or end < start:
            return f"has a gap or an overlap at byte {at} of its data"
        at = end
    return (
        None
        if at == size
        else f"has {size} bytes of data, its header says {at}: it is truncated or damaged"
    )
