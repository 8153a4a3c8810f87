"""A directory of embeddings that evaluations share: each file is one array with the key it is of.

A key names all that decides the embeddings, to the last bit. A file is a safetensors file, written
under another name and renamed, so that several processes can share a directory; it is read by
memory map, and only if its digests hold. Shapes: N embeddings, S samples, D dimensions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np
import xxhash
from safetensors import safe_open
from safetensors.numpy import save_file

from vlcpctl import __version__
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import warn
from vlcpctl.core.errors import BadInput, UsageError, VlcpError
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.inputs import decoded, open_regular, reading
from vlcpctl.files.outputs import new_part
from vlcpctl.files.tensors import writing_tensors

SCHEMA = "vlcpctl.embedding-cache/2"  # the key of the metadata
SUFFIX = ".safetensors"
_ALIGNED = 64  # bytes, as torch aligns its own tensors
_LENGTH = 8  # bytes of the header's length, in front of it
_LEFT_S = 3600
_EMBEDDINGS, _SAMPLES = "embeddings", "samples"

Key = Mapping[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Cached:
    """Embeddings (N, D) float32, and other facts that are stored with them, by name.

    `samples` are the keys of the samples (S,) that they are of: `vlcpctl forget` looks for them.
    """

    embeddings: Array
    samples: Sequence[str]
    facts: Mapping[str, Any] = field(default_factory=dict)


@final
class EmbeddingCache:
    """The files of a directory, which is made if it does not exist.

    What killed processes left half-written there is removed, if nobody wrote to it for an hour.
    Raises UsageError if it is not a directory, and OSError if it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise UsageError(f"--embedding-cache {directory} is not a directory")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self._has_warned = directory, False
        for left in directory.glob("*/.*.tmp-*"):
            with suppress(OSError):  # it is gone, or the directory cannot be written to
                if time.time() - left.stat().st_mtime > _LEFT_S:
                    left.unlink()

    def get(self, key: Key) -> Cached | None:
        """The embeddings of a key; None if they are not stored.

        A file that is damaged, or is of something else, is not used: a warning names it.
        """
        path = self._path(key)
        if not path.exists():
            return None
        try:
            about = _about(path)
            if canonical_json(about.key) != canonical_json(key):
                raise BadInput(f"{path} has embeddings of something else")
            return Cached(_embeddings(path, about), _samples(path, about), about.facts)
        except BadInput as error:
            warn(f"{error}; computing the embeddings again")
            return None

    def put(self, key: Key, found: Cached) -> None:
        """Store embeddings; a directory that cannot be written to is named in a warning, once."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            with new_part(path) as temporary:
                _write(temporary, key, found)
        except (OSError, VlcpError) as error:
            if not self._has_warned:
                why = f"cannot write {path}: {error}" if isinstance(error, OSError) else str(error)
                warn(f"{why}; the embeddings are not kept")
            self._has_warned = True

    def _path(self, key: Key) -> Path:
        name = content_id(key)
        return self.directory / name[:2] / f"{name}{SUFFIX}"


def samples_of(path: Path) -> set[str]:
    """The keys of the samples whose embeddings are in a file. Raises BadInput if it is damaged."""
    try:
        return set(_samples(path, _about(path)))
    except BadInput as error:
        raise BadInput(f"{error}; delete it, evaluations compute it again") from error


def prune(directory: Path, checkpoints: Collection[str]) -> None:
    """Remove the files whose embeddings are not by one of these checkpoints, or are damaged."""
    for path in directory.glob(f"*/*{SUFFIX}"):
        try:
            is_used = _about(path).key.get("checkpoint") in checkpoints
        except BadInput:
            is_used = False
        if not is_used:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # it has others
                path.parent.rmdir()


def is_cache_file(start: bytes) -> bool:
    """Whether a file that starts with these bytes has cached embeddings."""
    header = start[_LENGTH:]
    return header.startswith(b'{"__metadata__":') and SCHEMA.rpartition("/")[0].encode() in header


def _write(path: Path, key: Key, found: Cached) -> None:
    arrays: dict[str, Array] = {
        _EMBEDDINGS: np.ascontiguousarray(found.embeddings, dtype=np.float32),
        _SAMPLES: np.frombuffer("\n".join(found.samples).encode(), dtype=np.uint8),
    }
    digests = {name: _digest(array) for name, array in arrays.items()}
    about = canonical_json({"key": key, "facts": found.facts, "digests": digests})
    with writing_tensors(path):
        save_file(arrays, path, {SCHEMA: about})
        # Spaces move the embeddings, which come first, to where torch and numpy align them: they
        # are mapped, and products of vectors at other addresses may differ in the last bits.
        spaces = " " * (-_start(path) % _ALIGNED)
        if spaces:
            save_file(arrays, path, {SCHEMA: about + spaces})


def _start(path: Path) -> int:
    """The first byte after the header of a safetensors file, which starts with its length."""
    with path.open("rb") as file:
        return _LENGTH + int.from_bytes(file.read(_LENGTH), "little")


def _digest(array: Array) -> str:
    return xxhash.xxh3_128(array.data).hexdigest()


@dataclass(frozen=True)
class _About:
    """What the metadata of a file says."""

    key: dict[str, Any]
    facts: dict[str, Any]
    digests: dict[str, str]


def _about(path: Path) -> _About:
    """The metadata of a file. Raises BadInput if it is not ours or cannot be opened."""
    open_regular(path).close()  # a pipe would block
    with reading(path), safe_open(path, "numpy") as file:
        text = (file.metadata() or {}).get(SCHEMA)
        if text is None:
            raise BadInput(f"{path} is not a file of cached embeddings")
        return decoded(msgspec.json.Decoder(_About), text, path)


def _embeddings(path: Path, about: _About) -> Array:
    """The embeddings of a file, mapped; what is written to them stays in this process.

    Raises BadInput if they are not what was written.
    """
    with reading(path), safe_open(path, "numpy") as file:
        shape = tuple(file.get_slice(_EMBEDDINGS).get_shape())
        mapped = np.empty(shape, np.float32)  # nothing cannot be mapped
        if 0 not in shape:
            mapped = np.memmap(path, np.float32, "c", _start(path), shape)
    return _verified(path, about, _EMBEDDINGS, mapped)


def _samples(path: Path, about: _About) -> list[str]:
    """The keys of the samples of a file. Raises BadInput if they are not what was written."""
    with reading(path), safe_open(path, "numpy") as file:
        text = _verified(path, about, _SAMPLES, file.get_tensor(_SAMPLES)).tobytes().decode()
    return text.split("\n") if text else []


def _verified(path: Path, about: _About, name: str, found: Array) -> Array:
    if _digest(found) != about.digests.get(name):
        raise BadInput(f"{path} was changed since it was written")
    return found


def key_of(checkpoint: Path, device: str, batch_size: int, about: Mapping[str, Any]) -> Key:
    """The key of embeddings: `about` says of what, the rest by which model and how.

    The last bits depend on the machine, the number of threads and the size of batches, so these are
    part of it: embeddings are only found again where they would be computed to the same bits.
    Raises BadInput if the checkpoint cannot be read.
    """
    return {
        "checkpoint": CheckpointManifest.read(checkpoint).content,
        "batch_size": batch_size,
        "arithmetic": arithmetic(device),
        **about,
    }


def arithmetic(device: str) -> dict[str, Any]:
    """What decides the last bits of embeddings on a device, beside the size of batches."""
    import torch

    from vlcpctl.core.devices import arithmetic_facts, torch_device

    return {
        **arithmetic_facts(torch_device(device)),
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "vlcpctl": __version__,
    }
