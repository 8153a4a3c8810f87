"""Check a checkpoint for damage: the files it lists, and the layout of every safetensors file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.files.digests import changed_files, file_sha256, unlisted_files
from vlcpctl.files.inputs import parse_json
from vlcpctl.models.checkpoint_files import is_slot, would_be_loaded

_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors format


def check_checkpoint(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a checkpoint; `deep` hashes every file again.

    Raises BadInput if the manifest cannot be read, or has changed since it was written.
    """
    manifest = CheckpointManifest.read(path)
    for name, entry in sorted(manifest.digests.items()):
        changed = list(changed_files(path, {name: entry}, use_cache=not deep))
        yield from changed or _problems_of(path / name, manifest.files.get(name), deep=deep)
    for name in unlisted_files(path, manifest.digests):
        if is_slot(name) or would_be_loaded(name):
            yield f"{path / name} was added after the manifest was written"


def _problems_of(file: Path, sha256: str | None, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a file whose digest is right: it was wrong when written."""
    if deep and sha256 is not None and file_sha256(file) != sha256:
        yield f"{file} is not the file listed in checkpoint.json: its sha256 differs"
    problem = _problem_of(file) if file.suffix == ".safetensors" else None
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
            tensors = parse_json(file.read(length))
        except ValueError:
            return "has a header that is not JSON"
    if not isinstance(tensors, dict):
        return "has a header that does not list tensors"
    return _gap(tensors, size - 8 - length)


def _gap(tensors: dict[str, Any], size: int) -> str | None:
    """What is wrong if the tensors do not fill the file's data exactly, or None."""
    places, at = [], 0
    for name, entry in tensors.items():
        place = entry.get("data_offsets") if isinstance(entry, dict) else None
        if name != "__metadata__":
            if not isinstance(place, list) or [type(one) for one in place] != [int, int]:
                return "has a tensor without data offsets"
            places.append((place[0], place[1]))
    places.sort()
    for start, end in places:
        if start != at or end < start:
            return f"has a gap or an overlap at byte {at} of its data"
        at = end
    return (
        None
        if at == size
        else f"has {size} bytes of data, its header says {at}: it is truncated or damaged"
    )
