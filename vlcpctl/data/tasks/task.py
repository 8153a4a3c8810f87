"""Read a task directory: its manifest, and any image by its offset in a tar."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.digests import verify_files
from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.manifest import kind_of
from vlcpctl.core.printable import printable
from vlcpctl.core.recorded_files import RESTORE
from vlcpctl.core.versions import WAS, Versions
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.data.tasks.index import ContentId, read_index
from vlcpctl.data.tasks.index_checks import file_size, row_problems


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
    def was(self) -> tuple[str, ...]:
        """Earlier content ids of the data, oldest first, if 'vlcpctl forget' has rewritten it."""
        return tuple(self.manifest.get(WAS) or ())

    @property
    def kept_columns(self) -> list[str]:
        """The columns of the sources that its indexes keep (--keep-columns), in order."""
        return list(self.manifest.get("kept_columns", ()))

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
        return Split(self.path, name, self.manifest["splits"][name], self.kept_columns)


class Split:
    """A split of N images: the index is held in memory, images are read from disk on demand.

    `listed` is the split's entry in task.json, `kept` the columns listed there as kept. Raises
    BadInput if the index is not the one that was written with it, if a row of it cannot be right,
    or if a tar is missing or truncated.
    """

    def __init__(
        self, directory: Path, name: str, listed: Mapping[str, Any], kept: Sequence[str] = ()
    ) -> None:
        self.directory, self.name = directory, name
        self.path = directory / f"{name}.parquet"
        if "index" in listed:  # not in tasks of earlier versions
            verify_files(directory, {self.path.name: listed["index"]}, advice=RESTORE)
        self.table = read_index(self.path, kept)
        shards = _shard_sizes(directory, listed)
        for problem in row_problems(self.table, self.path, shards, kept):
            raise BadInput(f"{problem}; run 'vlcpctl check'")
        self.keys: list[str] = self.table["key"].to_pylist()
        self._check_against(listed)
        self._offsets = self.table["offset"].to_numpy()
        self._sizes = self.table["size"].to_numpy()
        self._shards = self.table["shard"].combine_chunks().dictionary_encode()
        self._shard_names: list[str] = self._shards.dictionary.to_pylist()
        self._shard_of = np.asarray(self._shards.indices)
        self._captions = self.table["captions"].combine_chunks()
        self._descriptors: dict[tuple[int, int], int] = {}

    def _check_against(self, listed: Mapping[str, Any]) -> None:
        """Raise BadInput if the rows are not those that task.json lists."""
        if len(self.keys) != listed["images"]:
            found = f"images is {len(self.keys)}, task.json says {listed['images']}"
            raise BadInput(f"{self.path}: {found}{RESTORE}")
        if "index" in listed:
            return  # verified by its digest; what follows takes as long as reading the index
        content = ContentId()
        content.add_columns(self.table["key"], self.table["label"])
        if content.hexdigest() != listed["content"]:
            found = f"content is {content.hexdigest()}, task.json says {listed['content']}"
            raise BadInput(f"{self.path}: {found}{RESTORE}")
        if len(set(self.keys)) < len(self.keys):
            twice = next(key for key, count in Counter(self.keys).items() if count > 1)
            raise BadInput(f"{self.path}: two rows have the key {printable(twice):.80}{RESTORE}")

    def __len__(self) -> int:
        return len(self.keys)

    def captions(self, row: int) -> list[str]:
        """All captions of the image at `row`."""
        captions: list[str] = self._captions[row].as_py()
        return captions

    def caption_counts(self) -> np.ndarray:
        """(N,) int: the number of captions of each image."""
        return np.diff(self._captions.offsets.to_numpy())

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The widths and the heights of the N images in pixels, (N,) int32 each."""
        return self.table["width"].to_numpy(), self.table["height"].to_numpy()

    def column(self, name: str) -> list[Any]:
        """The N values of a column of the index, as Python objects.

        Raises BadInput if the index does not have it: some are only in the indexes of buffers.
        """
        if name not in self.table.column_names:
            raise BadInput(f"{self.path} has no column {name!r}; run 'vlcpctl check'")
        values: list[Any] = self.table[name].to_pylist()
        return values

    def image(self, row: int) -> bytes:
        """The encoded bytes of the image at `row`.

        Raises BadInput if the tar cannot be read or the bytes do not have the index's sha256.
        """
        shard = int(self._shard_of[row])
        size = int(self._sizes[row])
        try:
            data = os.pread(self._descriptor(shard), size, int(self._offsets[row]))
        except OSError as error:
            where = self.directory / self._shard_names[shard]
            raise BadInput(f"{unreadable(where, error)} (key {self.keys[row]})") from error
        if hashlib.sha256(data).hexdigest() != self.table["sha256"][row].as_py():
            where = self.directory / self._shard_names[shard]
            found = f"{where}: the image of key {self.keys[row]} does not match the index"
            raise BadInput(f"{found} (its sha256 differs); run 'vlcpctl check --deep'")
        return data

    def _descriptor(self, shard: int) -> int:
        # Workers are forked: each process opens its own descriptor and shares none with its parent.
        place = (os.getpid(), shard)
        if place not in self._descriptors:
            path = self.directory / self._shard_names[shard]
            try:
                # A pipe that takes the place of a tar must not block.
                self._descriptors[place] = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            except OSError as error:
                raise BadInput(unreadable(path, error)) from error
        return self._descriptors[place]


def _shard_sizes(directory: Path, listed: Mapping[str, Any]) -> dict[str, int]:
    """The size in bytes of each tar of a split.

    Raises BadInput if one is missing or does not have the size that was recorded.
    """
    sizes = {shard: file_size(directory / shard) for shard in listed["shards"]}
    for shard, written in zip(sizes, listed.get("shard_bytes", ()), strict=False):
        if sizes[shard] != written:
            raise BadInput(
                f"{directory / shard} has changed since it was written: it has {sizes[shard]} "
                f"bytes and had {written}{RESTORE}"
            )
    return sizes


def open_task(path: Path) -> Task:
    """Open a task or buffer directory.

    Raises BadInput if it is neither, or if its manifest has changed since it was written; for a
    stream the message lists the paths of its tasks.
    """
    if kind_of(path) == "stream":
        tasks = " ".join(str(path / entry["path"]) for entry in read_stream(path)["tasks"])
        raise BadInput(f"{path} is a stream; give one of its tasks: {tasks}")
    return Task(path, read_task(path))


def open_stream(path: Path) -> list[Task]:
    """The tasks of a stream directory, in order.

    Raises BadInput if it is not a stream, or if a task is not the one that it lists. A task that
    was rewritten since is still the same.
    """
    tasks = []
    for entry in read_stream(path)["tasks"]:
        task = open_task(path / entry["path"])
        if not Versions.of([task.manifest]).same(task.content, entry["content"]):
            raise BadInput(f"{not_listed(task.path, task.content)}{RESTORE}")
        tasks.append(task)
    return tasks


def not_listed(path: Path, content: str) -> str:
    """The message for a task of another content id than stream.json lists for its directory."""
    return f"{path} is not the task listed in stream.json: its content id is {content}"
