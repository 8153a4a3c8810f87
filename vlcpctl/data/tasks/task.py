"""Read a task directory: its manifest, any image by its offset in a tar, and its neighbours."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, VlcpError, unreadable
from vlcpctl.core.machine import is_about_limits, limit_text
from vlcpctl.core.words import shortened
from vlcpctl.data.tasks.facts import (
    BufferManifest,
    SplitManifest,
    StreamTask,
    TaskManifest,
    read_stream,
    read_task,
)
from vlcpctl.data.tasks.index import (
    Rows,
    in_memory,
    index_batches,
    open_rows,
    read_index,
    read_keys,
)
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.files.digests import RESTORE, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import OpenFiles
from vlcpctl.files.manifest import MANIFESTS, kind_of
from vlcpctl.files.parquet_files import read_columns
from vlcpctl.files.stores import fetch_images, images_file, is_stored


@dataclass(frozen=True)
class Task:
    """A task directory; a replay buffer is one too, with `train` as its only split."""

    path: Path
    manifest: TaskManifest

    @property
    def name(self) -> str:
        """The task's name, which may contain any character."""
        return self.manifest.name

    @property
    def slug(self) -> str:
        """The name in a form that is safe in paths, such as `02-animals-nature`."""
        return self.manifest.slug

    @property
    def step(self) -> int | None:
        """The task's position in the stream, from 0; None for a buffer."""
        return self.manifest.step

    @property
    def content(self) -> str:
        """The content id of the task's data."""
        return self.manifest.content

    @property
    def id(self) -> str:
        """The content id with which the task was made; 'vlcpctl forget' keeps it."""
        return self.manifest.id

    @property
    def ids(self) -> tuple[str, str]:
        """What names the task in manifests: its id, and its content, which 0.3 named it by."""
        return self.id, self.content

    def is_among(self, tasks: Collection[str]) -> bool:
        """Whether one of these tasks, by content id, is this one."""
        return not set(self.ids).isdisjoint(tasks)

    def changed(self, *splits: str) -> str | None:
        """The content id of these splits, if 'vlcpctl forget' has removed pairs from one.

        A task that version 0.3 has rewritten does not say from which: then they count as changed.
        """
        every = self.manifest.splits
        is_known = not self.manifest.is_rewritten or any(one.id for one in every.values())
        found = [every[name] for name in splits if name in every]
        if is_known and not any(split.id for split in found):
            return None
        return content_id([split.content for split in found])

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """The columns of the sources that its indexes keep (--keep-columns), in order."""
        return self.manifest.kept_columns

    @property
    def buffer(self) -> BufferManifest:
        """What a buffer records of itself. Raises BadInput for a plain task."""
        if self.manifest.buffer is None:
            raise BadInput(
                f"{self.path} is a task, not a buffer; make one of it with 'vlcpctl buffer'"
            )
        return self.manifest.buffer

    @property
    def counts(self) -> dict[str, int]:
        """Number of images in each split."""
        return {name: split.images for name, split in self.manifest.splits.items()}

    def require(self, split: str) -> None:
        """Raise BadInput unless the task has this split, with at least one image."""
        if not self.counts.get(split):
            known = ", ".join(name for name, count in self.counts.items() if count) or "none"
            raise BadInput(f"{self.path} has no images in split {split!r} (it has: {known})")

    def split(self, name: str, lowest: int | None = None) -> Split:
        """Open one split, or its images with the `lowest` keys.

        Raises BadInput if there is no such split or its index is damaged.
        """
        if name not in self.manifest.splits:  # a split without images can be opened
            self.require(name)
        return Split(self.path, name, self.manifest.splits[name], self.kept_columns, lowest)


class Split(Rows):
    """A split of N images, which are read on demand; the rows that locate them are memory-mapped.

    `listed` is the split's entry in task.json, `kept` the columns listed there as kept. With
    `lowest`, only that many images are in it, those with the lowest keys, in their order; `table`
    and `columns` still have all. Raises BadInput if the index or its file of rows is not the one
    that was written, if a row cannot be right, or if a tar is missing or truncated.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        listed: SplitManifest,
        kept: Sequence[str] = (),
        lowest: int | None = None,
    ) -> None:
        self.directory, self.name = directory, name
        self.path = directory / f"{name}.parquet"
        self._listed, self._kept, self._lowest = listed, kept, lowest
        verify_files(directory, {self.path.name: listed.index}, advice=RESTORE)
        sizes = _shard_sizes(directory, listed)
        super().__init__(open_rows(self.path, listed.index, listed.rows))
        self._check(sizes)
        if len(self) != listed.images:
            found = f"images is {len(self)}, task.json says {listed.images}"
            raise BadInput(f"{self.path}: {found}{RESTORE}")
        if lowest is not None and lowest < len(self):
            rows = pa.array(np.sort(self.keys.order()[:lowest]))
            table = pa.Table.from_batches(self._batches).take(rows).combine_chunks()
            del self.keys  # of all
            super().__init__(in_memory(table.schema, table.to_batches()))
        self._tars = OpenFiles([images_file(directory / shard) for shard in self.shards])
        self._is_stored = is_stored(directory)

    def __reduce__(self) -> tuple[type[Split], tuple[Any, ...]]:
        # Another process opens the split again, and gets no copy of its rows.
        return Split, (self.directory, self.name, self._listed, self._kept, self._lowest)

    def _check(self, sizes: Mapping[str, int]) -> None:
        """Raise BadInput for a row that is not within a tar on record, or that has no caption.

        The digests on record do not cover this for a task from elsewhere. `sizes` are bytes by tar.
        """
        unknown = [name for name in self.shards if name not in sizes]
        if unknown:
            found = f"refers to shard {unknown[0]!r:.100}, which task.json does not list"
            raise BadInput(f"{self.path} {found}; run 'vlcpctl check'")
        ends = np.array([*(sizes[name] for name in self.shards), -1], dtype=np.int64)
        first = 0
        for batch in self._batches:
            shard, offset, size = (batch[name].to_numpy() for name in ("shard", "offset", "size"))
            wrong = (shard < 0) | (shard >= len(self.shards)) | (offset < 0) | (size < 1)
            # Not offset + size > end, which could overflow.
            wrong |= offset > ends[np.clip(shard, -1, len(self.shards))] - size
            wrong |= pc.list_value_length(batch["captions"]).to_numpy() < 1
            if wrong.any():
                row = first + int(np.flatnonzero(wrong)[0])
                said = "its image is not within its tar, or it has no caption; run 'vlcpctl check'"
                raise BadInput(f"{self.path}, row {row} (key {self.key(row)}): {said}")
            first += len(batch)

    @cached_property
    def table(self) -> pa.Table:
        """The index with all its columns, read into memory; see `columns` and `take`.

        Raises BadInput as `Split` does.
        """
        return read_index(self.path, self._kept)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of the index, read into memory. Raises BadInput if it lacks one."""
        return read_columns(self.path, names, pre_buffer=False)

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The widths and the heights of the N images in pixels, (N,) int32 each."""
        table = self.columns(["width", "height"])
        return table["width"].to_numpy(), table["height"].to_numpy()

    def column(self, name: str) -> list[Any]:
        """The N values of a column of the index, as Python objects.

        Raises BadInput if the index does not have it: some are only in the indexes of buffers.
        """
        if name == "label":
            names, codes = self.labels()
            return [None if code < 0 else names[code] for code in codes.tolist()]
        if name == "sha256":
            return [self.sha256(row).hex() for row in range(len(self))]
        values: list[Any] = self.columns([name])[name].to_pylist()
        return values

    def take(self, rows: np.ndarray, schema: pa.Schema) -> pa.Table:
        """The rows of the index at (n,) ascending numbers, with the columns of a schema.

        They are read without holding the others. Raises BadInput if the index lacks a column.
        """
        found, first = [], 0
        for batch in index_batches(self.path, schema):
            here = slice(*np.searchsorted(rows, (first, first + len(batch))))
            taken = batch.take(pa.array(rows[here] - first))
            found.append(pa.record_batch(taken.columns, schema=schema))
            first += len(batch)
        return pa.Table.from_batches(found, schema)

    def image(self, row: int) -> bytes:
        """The encoded bytes of the image at `row`.

        Raises BadInput if the tar cannot be read or the bytes do not have the index's sha256, and
        VlcpError if it is in an object store that does not give them.
        """
        try:
            data = self._read(row)
            is_right = self._is_right(row, data)
            if self._is_stored and not is_right:
                self.fetch([row])
                data = self._read(row)
                is_right = self._is_right(row, data)
        except OSError as error:
            where = f"{unreadable(self._tar_of(row), error)} (key {self.key(row)})"
            raise BadInput(where) from error
        if not is_right:
            found = f"{self._tar_of(row)}: the image of key {self.key(row)} does not match"
            raise BadInput(f"{found} the index (its sha256 differs); run 'vlcpctl check --deep'")
        return data

    def _tar_of(self, row: int) -> Path:
        return self.directory / self.shards[self.place(row)[0]]

    @contextmanager
    def naming(self, row: int) -> Iterator[None]:
        """Names the image at `row`, and its source key, in an error of decoding or resizing it."""
        try:
            yield
        except BadInput as error:
            advice = "'vlcpctl split --decode' names the row of its source and skips it"
            raise BadInput(f"{self._named(row)}: {error}; {advice}") from error
        except (MemoryError, RuntimeError) as error:
            if not is_about_limits(error):
                raise
            raise VlcpError(f"{self._named(row)}: {limit_text(error)}") from error

    def _named(self, row: int) -> str:
        table = self.columns(["key", "source_key"])
        at = table["key"].to_pylist().index(self.keys[row])  # not `row` if `lowest` was given
        return f"{self.path}, row {at} (source key {shortened(str(table['source_key'][at]))})"

    def fetch(self, rows: Sequence[int]) -> None:
        """Fetch the images at `rows`, which are read next, if they are in an object store.

        Raises VlcpError if the store does not give them.
        """
        if not self._is_stored:
            return
        absent = [row for row in rows if not self._is_right(row, self._read(row))]
        if absent:
            fetch_images([(self._tar_of(row), *self.place(row)[1:]) for row in absent])

    def _read(self, row: int) -> bytes:
        shard, offset, size = self.place(row)
        return os.pread(self._tars.descriptor(shard), size, offset)

    def _is_right(self, row: int, data: bytes) -> bool:
        return hashlib.sha256(data).digest() == self.sha256(row)


def _shard_sizes(directory: Path, listed: SplitManifest) -> dict[str, int]:
    """The size in bytes of each tar of a split.

    Raises BadInput if one is missing or does not have the size that was recorded.
    """
    for path in (directory / shard for shard in listed.shards):
        if path.is_symlink() and not path.exists():
            raise BadInput(f"{path} is a link to {path.readlink()}, which is missing{RESTORE}")
    sizes = {shard: _file_size(directory / shard) for shard in listed.shards}
    for shard, written in zip(listed.shards, listed.shard_bytes, strict=True):
        if sizes[shard] != written:
            raise BadInput(
                f"{directory / shard} has changed since it was written: it has {sizes[shard]} "
                f"bytes and had {written}{RESTORE}"
            )
    return sizes


def _file_size(path: Path) -> int:
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise BadInput(unreadable(path, error)) from error
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"cannot read {path}: it is not a regular file")
    return found.st_size


def open_task(path: Path) -> Task:
    """Open a task or buffer directory.

    Raises BadInput if it is neither, or if its manifest has changed since it was written; for a
    stream the message lists the paths of its tasks.
    """
    if kind_of(path) == "stream":
        tasks = " ".join(str(path / entry.path) for entry in read_stream(path).tasks)
        raise BadInput(f"{path} is a stream; give one of its tasks: {tasks}")
    return Task(path, read_task(path))


def open_stream(path: Path) -> list[Task]:
    """The tasks of a stream directory, in order.

    Raises BadInput if it is not a stream, or if a task is not the one that it lists.
    """
    tasks = []
    for entry in read_stream(path).tasks:
        task = open_task(path / entry.path)
        if not is_listed(task.manifest, entry):
            raise BadInput(f"{not_listed(task.path, task.content)}{RESTORE}")
        tasks.append(task)
    return tasks


def ids_by_content(tasks: Iterable[Task]) -> dict[str, str]:
    """The ids of the tasks that 'vlcpctl forget' has rewritten, by their content ids."""
    return {one.content: one.id for one in tasks if one.manifest.is_rewritten}


def is_listed(task: TaskManifest, entry: StreamTask) -> bool:
    """Whether a task is the one that its stream lists.

    In a stream of links to tasks, `forget` rewrites the tasks, but not the list.
    """
    return entry.content in {task.content, task.id}


def not_listed(path: Path, content: str) -> str:
    """The message for a task of another content id than stream.json lists for its directory."""
    return f"{path} is not the task listed in stream.json: its content id is {content}"


def stream_entries(task: Task) -> list[tuple[str, tuple[str, str]]]:
    """The directory and the ids, as `Task.ids`, of all tasks of the task's stream, in order.

    Nothing if its directory is not inside the stream. Other directories may have been deleted.
    """
    directory = task.path.resolve().parent
    if not (directory / MANIFESTS["stream"]).is_file():
        return []
    try:
        manifest = read_stream(directory)
    except BadInput:  # it only helps to find mistakes: not needed to train
        return []
    if manifest.id != task.manifest.stream:
        return []
    found = []
    for one in manifest.tasks:
        ids = one.id or one.content, one.content
        if manifest.is_rewritten and not one.id:  # version 0.3 did not record it here
            with suppress(BadInput):
                ids = read_task(directory / one.path).id, one.content
        found.append((one.path, ids))
    return found


def shared_with_evaluation(keys: Keys, task: Task) -> Iterator[tuple[Path, Keys]]:
    """The index of each split for evaluation, of the task or of its stream, and what it shares.

    Tasks of the stream that are no longer there are left out. Raises BadInput if an index that is
    there cannot be read.
    """
    own = task.path.resolve()
    others = [own.parent / name for name, _ in stream_entries(task) if name != own.name]
    for directory in (own, *others):
        for index in sorted(directory.glob("*.parquet")):
            if index.stem == "train":
                continue
            tested = read_keys(index)
            shared = tested.take(tested.among(keys))
            if len(shared):
                yield index, shared
