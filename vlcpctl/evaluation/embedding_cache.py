"""A directory of embeddings that evaluations share: each file is one array with the key it is of.

A key names all that decides the embeddings, to the last bit. A file is a safetensors file, written
under another name and renamed, so that several processes can share a directory; it is read by
memory map, and only if its digests hold. Shapes: N embeddings, S samples, D dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import xxhash

from vlcpctl import __version__
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.atomic import new_part
from vlcpctl.core.console import warn
from vlcpctl.core.errors import BadInput, OutputExists, UsageError, unreadable
from vlcpctl.core.hashing import canonical_json, content_id
from vlcpctl.core.input_files import open_regular
from vlcpctl.core.safe_json import parse_json

SCHEMA = "vlcpctl.embedding-cache/1"
SUFFIX = ".safetensors"
_MOST_HEADER_BYTES = 1 << 26
_ALIGNED = 64  # bytes, as torch aligns its own tensors
_LENGTH = 8  # bytes of the header's length, in front of it
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

    Raises UsageError if it is not a directory, and OSError if it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise UsageError(f"--embedding-cache {directory} is not a directory")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self._has_warned = directory, False

    def get(self, key: Key) -> Cached | None:
        """The embeddings of a key; None if they are not stored.

        A file that is damaged, or is of something else, is not used: a warning names it.
        """
        path = self._path(key)
        if not path.exists():
            return None
        try:
            header = _Header.read(path)
            header.verify()
            if canonical_json(header.key) != canonical_json(key):
                raise BadInput(f"{path} has embeddings of something else")
        except (OSError, BadInput) as error:
            why = unreadable(path, error) if isinstance(error, OSError) else str(error)
            warn(f"{why}; computing the embeddings again")
            return None
        return Cached(header.array(_EMBEDDINGS), header.samples(), header.facts)

    def put(self, key: Key, found: Cached) -> None:
        """Store embeddings; a directory that cannot be written to is named in a warning, once."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            with new_part(path) as temporary:
                _write(temporary, key, found)
        except (OSError, OutputExists) as error:
            if not self._has_warned:
                warn(f"cannot write {path}: {error}; the embeddings are not kept")
            self._has_warned = True

    def _path(self, key: Key) -> Path:
        name = content_id(key)
        return self.directory / name[:2] / f"{name}{SUFFIX}"


def samples_of(path: Path) -> set[str]:
    """The keys of the samples whose embeddings are in a file. Raises BadInput if it is damaged."""
    try:
        header = _Header.read(path)
        header.verify([_SAMPLES])
        return set(header.samples())
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    except BadInput as error:
        raise BadInput(f"{error}; delete it, evaluations compute it again") from error


def is_cache_file(start: bytes) -> bool:
    """Whether a file that starts with these bytes has cached embeddings."""
    return f'"schema":"{SCHEMA}"'.encode() in start


def _write(path: Path, key: Key, found: Cached) -> None:
    samples = np.frombuffer("\n".join(found.samples).encode(), dtype=np.uint8)
    vectors = np.ascontiguousarray(found.embeddings, dtype=np.float32)
    arrays: dict[str, tuple[str, Array]] = {
        _EMBEDDINGS: ("F32", vectors),
        _SAMPLES: ("U8", samples),
    }
    about = {
        "schema": SCHEMA,
        "key": canonical_json(key),
        "facts": canonical_json(found.facts),
        "digests": canonical_json({name: _digest(one) for name, (_, one) in arrays.items()}),
    }
    entries: dict[str, Any] = {"__metadata__": about}
    start = 0
    for name, (kind, one) in arrays.items():
        offsets = [start, start + one.nbytes]
        entries[name] = {"dtype": kind, "shape": list(one.shape), "data_offsets": offsets}
        start += one.nbytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(_LENGTH + len(header)) % _ALIGNED)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(_LENGTH, "little") + header)
        for _, one in arrays.values():
            file.write(one.data)


def _digest(array: Array) -> str:
    return xxhash.xxh3_128(np.ascontiguousarray(array).data).hexdigest()


@dataclass(frozen=True)
class _Header:
    """What a file says of itself."""

    path: Path
    start: int  # of the data, in bytes
    arrays: dict[str, dict[str, Any]]
    key: dict[str, Any]
    facts: dict[str, Any]
    digests: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> _Header:
        """The header of a file. Raises BadInput if it is not ours or cannot be opened."""
        with open_regular(path) as file:
            size = int.from_bytes(file.read(_LENGTH), "little")
            if size > _MOST_HEADER_BYTES:
                raise BadInput(f"{path} is not a file of cached embeddings")
            try:
                entries = parse_json(file.read(size))
                about = entries.pop("__metadata__")
                is_ours = about["schema"] == SCHEMA
                parsed = [parse_json(about[name]) for name in ("key", "facts", "digests")]
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise BadInput(f"{path} is not a file of cached embeddings") from error
        if not is_ours or not all(isinstance(one, dict) for one in parsed):
            raise BadInput(f"{path} is not a file of cached embeddings")
        return cls(path, _LENGTH + size, entries, *parsed)

    def verify(self, names: Collection[str] = (_EMBEDDINGS, _SAMPLES)) -> None:
        """Raise BadInput unless these arrays have the digests that were recorded."""
        for name in names:
            if _digest(self.array(name)) != self.digests.get(name):
                raise BadInput(f"{self.path} was changed since it was written")

    def array(self, name: str) -> Array:
        """An array of the file, mapped; what is written to it stays in this process."""
        try:
            about = self.arrays[name]
            shape = tuple(int(one) for one in about["shape"])
            kind = {"F32": np.float32, "U8": np.uint8}[about["dtype"]]
            if 0 in shape:
                return np.empty(shape, kind)
            offset = self.start + int(about["data_offsets"][0])
            return np.memmap(self.path, kind, mode="c", offset=offset, shape=shape)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"{self.path} was changed since it was written") from error

    def samples(self) -> list[str]:
        """The keys of the samples."""
        text = self.array(_SAMPLES).tobytes().decode(errors="replace")
        return text.split("\n") if text else []


def key_of(checkpoint: Path, device: str, batch_size: int, about: Mapping[str, Any]) -> Key:
    """The key of embeddings: `about` says of what, the rest by which model and how.

    The last bits depend on the machine, the number of threads and the size of batches, so these are
    part of it: embeddings are only found again where they would be computed to the same bits.
    Raises BadInput if the checkpoint cannot be read.
    """
    return {
        "checkpoint": CheckpointManifest.read(checkpoint).content,
        "batch_size": batch_size,
        "arithmetic": _arithmetic(device),
        **about,
    }


def _arithmetic(device: str) -> dict[str, Any]:
    import torch

    from vlcpctl.core.devices import arithmetic_facts, torch_device

    return {
        **arithmetic_facts(torch_device(device)),
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "vlcpctl": __version__,
    }
