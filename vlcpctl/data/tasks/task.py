"""Read a task directory: its manifest, and any image by its offset in a tar."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.manifest import kind_of, read_manifest
from vlcpctl.data.tasks.index import read_index


@dataclass(frozen=True)
class Task:
    """A task directory; a replay buffer is one too, with `train` as its only split."""

    path: Path
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """The task's name, which may contain any character."""
        return str(self.manifest["name"])

    @property
    def slug(self) -> str:
        """The name in a form that is safe in paths, such as `02-animals-nature`."""
        return str(self.manifest["slug"])

    @property
    def step(self) -> int | None:
        """The task's position in the stream, from 0; None for a buffer."""
        step = self.manifest.get("step")
        return None if step is None else int(step)

    @property
    def content(self) -> str:
        """The content id of the task's data."""
        return str(self.manifest["content"])

    @property
    def counts(self) -> dict[str, int]:
        """Number of images in each split."""
        return {name: int(split["images"]) for name, split in self.manifest["splits"].items()}

    def require(self, split: str) -> None:
        """Raise BadInput unless the task has this split, with at least one image."""
        if not self.counts.get(split):
            known = ", ".join(name for name, count in self.counts.items() if count) or "none"
            raise BadInput(f"{self.path} has no images in split {split!r} (it has: {known})")

    def split(self, name: str) -> Split:
        """Open one split. Raises BadInput if there is no such split or its index is damaged."""
        if name not in self.manifest["splits"]:  # a split without images can be opened
            self.require(name)
        return Split(self.path, name)


class Split:
    """A split of N images: the index is held in memory, images are read from disk on demand.

    Raises BadInput if the index cannot be read, lacks a column, or has an image without a caption.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name = directory, name
        self.path = directory / f"{name}.parquet"
        self.table = read_index(self.path)
        self.keys: list[str] = self.table["key"].to_pylist()
        self._offsets = self.table["offset"].to_numpy()
        self._sizes = self.table["size"].to_numpy()
        self._shards = self.table["shard"].combine_chunks().dictionary_encode()
        self._shard_names: list[str] = self._shards.dictionary.to_pylist()
        self._shard_of = np.asarray(self._shards.indices)
        self._captions = self.table["captions"].combine_chunks()
        self._descriptors: dict[tuple[int, int], int] = {}
        bare = np.flatnonzero(self.caption_counts() == 0)
        if len(bare):
            raise BadInput(
                f"{self.path}: the image of key {self.keys[bare[0]]} has no caption; "
                "run 'vlcpctl check'"
            )

    def __len__(self) -> int:
        return len(self.keys)

    def captions(self, row: int) -> list[str]:
        """All captions of the image at `row`."""
        captions: list[str] = self._captions[row].as_py()
        return captions

    def caption_counts(self) -> np.ndarray:
        """(N,) int: the number of captions of each image."""
        return np.diff(self._captions.offsets.to_numpy())

    def column(self, name: str) -> list[Any]:
        """The N values of a column of the index, as Python objects."""
        values: list[Any] = self.table[name].to_pylist()
        return values

    def image(self, row: int) -> bytes:
        """The encoded bytes of the image at `row`.

        Raises BadInput if the tar cannot be read or the bytes do not have the index's sha256.
        """
        shard = int(self._shard_of[row])
        size = int(self._sizes[row])
        data = os.pread(self._descriptor(shard), size, int(self._offsets[row]))
        if hashlib.sha256(data).hexdigest() != self.table["sha256"][row].as_py():
            where = self.directory / self._shard_names[shard]
            found = f"{where}: the image of key {self.keys[row]} does not match the index"
            raise BadInput(f"{found} (its sha256 differs); run 'vlcpctl check'")
        return data

    def _descriptor(self, shard: int) -> int:
        # Workers are forked: each process opens its own descriptor and shares none with its parent.
        place = (os.getpid(), shard)
        if place not in self._descriptors:
            path = self.directory / self._shard_names[shard]
            try:
                self._descriptors[place] = os.open(path, os.O_RDONLY)
            except OSError as error:
                raise BadInput(unreadable(path, error)) from error
        return self._descriptors[place]


def open_task(path: Path) -> Task:
    """Open a task or buffer directory.

    Raises BadInput if it is neither; for a stream the message lists the paths of its tasks.
    """
    if kind_of(path) == "stream":
        tasks = " ".join(
            str(path / entry["path"]) for entry in read_manifest(path, "stream")["tasks"]
        )
        raise BadInput(f"{path} is a stream; give one of its tasks: {tasks}")
    return Task(path, read_manifest(path, "task"))


def open_stream(path: Path) -> list[Task]:
    """The tasks of a stream directory, in order. Raises BadInput if it is not a stream."""
    manifest = read_manifest(path, "stream")
    return [open_task(path / entry["path"]) for entry in manifest["tasks"]]
