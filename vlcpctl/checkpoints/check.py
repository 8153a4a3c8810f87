"""Check a checkpoint for damage: the files it lists, and the layout of every safetensors file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import first_line
from vlcpctl.files.digests import changed_files, file_sha256, unlisted_files
from vlcpctl.models.checkpoint_files import is_slot, would_be_loaded


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
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, "numpy"):  # reads the header, and compares it with the size
                pass
        except SafetensorError as error:
            yield f"{file} is not a whole safetensors file: {first_line(error)}"
