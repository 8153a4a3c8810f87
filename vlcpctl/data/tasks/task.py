"""Read a task directory: its manifest, and any image by its offset in a tar."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

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
from vlcpctl.data.tasks.index import read_columns, read_index, rows_at
from vlcpctl.data.tasks.index_checks import RowProblems, file_size, row_problems
from vlcpctl.data.tasks.rows import SHA256_BYTES, lowest_rows, map_rows, rows_path
from vlcpctl.files.digests import RESTORE, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import OpenFiles
from vlcpctl.files.manifest import kind_of
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


class Split:
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
        path = rows_path(self.path)
        recorded = {self.path.name: listed.index, path.name: listed.rows}
        verify_files(directory, recorded, advice=RESTORE)
        self._shard_sizes = _shard_sizes(directory, listed)
        self._rows = map_rows(path)
        for problem in RowProblems(path, self._shard_sizes).of_rows(self._rows):
            raise BadInput(f"{problem}; run 'vlcpctl check'")
        self.keys = self._rows.keys
        if len(self.keys) != listed.images:
            found = f"images is {len(self.keys)}, task.json says {listed.images}"
            raise BadInput(f"{path}: {found}{RESTORE}")
        if lowest is not None and lowest < len(self.keys):
            self._rows = lowest_rows(path, lowest)
            self.keys = self._rows.keys
        self._tars = OpenFiles([images_file(directory / shard) for shard in self._rows.shards])
        self._is_stored = is_stored(directory)

    def __reduce__(self) -> tuple[type[Split], tuple[Any, ...]]:
        # Another process opens the split again, and gets no copy of its rows.
        return Split, (self.directory, self.name, self._listed, self._kept, self._lowest)

    @cached_property
    def table(self) -> pa.Table:
        """The index with all its columns, read into memory; see `columns` and `take`.

        Raises BadInput as `Split` does.
        """
        table = read_index(self.path, self._kept)
        for problem in row_problems(table, self.path, self._shard_sizes, self._kept):
            raise BadInput(f"{problem}; run 'vlcpctl check'")
        return table

    def __len__(self) -> int:
        return len(self.keys)

    def captions(self, row: int) -> list[str]:
        """All captions of the image at `row`."""
        lists, ends, text = self._rows.caption
        places = ends[lists[row] : lists[row + 1] + 1].tolist()
        return [str(text[start:end], "utf-8") for start, end in pairwise(places)]

    def caption_count(self, row: int) -> int:
        """The number of captions of the image at `row`."""
        lists = self._rows.caption[0]
        return int(lists[row + 1] - lists[row])

    def caption_counts(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """(n,) int: the number of captions of each image, or of those at `rows`."""
        lists = self._rows.lists
        counts: np.ndarray = lists[1:][rows] - lists[:-1][rows]
        return counts

    def digests(self) -> np.ndarray:
        """The sha256 of the bytes of each of the N images, (N, 32) uint8."""
        return np.frombuffer(self._rows.sha256, np.uint8).reshape(-1, SHA256_BYTES)

    def texts(self) -> tuple[np.ndarray, memoryview]:
        """All T captions, row after row, as places (T + 1,) in UTF-8 bytes, and these bytes."""
        rows = self._rows
        return rows.ends[rows.lists[0] : rows.lists[-1] + 1], rows.text

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The widths and the heights of the N images in pixels, (N,) int32 each."""
        table = self.columns(["width", "height"])
        return table["width"].to_numpy(), table["height"].to_numpy()

    def column(self, name: str) -> list[Any]:
        """The N values of a column of the index, as Python objects.

        Raises BadInput if the index does not have it: some are only in the indexes of buffers.
        """
        if name == "label":
            return list(self._rows.label.to_pylist())
        if name == "sha256":
            digits = self._rows.sha256
            return [digits[32 * row : 32 * row + 32].hex() for row in range(len(self))]
        values: list[Any] = self.columns([name])[name].to_pylist()
        return values

    def labels(self) -> tuple[list[str], np.ndarray]:
        """Names of labels, and (N,) int32: the index of each row's among them; -1 without one."""
        label = self._rows.label
        codes: np.ndarray = label.indices.fill_null(-1).to_numpy()
        return label.dictionary.to_pylist(), codes

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of the index, read into memory. Raises BadInput if it lacks one."""
        return read_columns(self.path, names)

    def take(self, rows: np.ndarray, schema: pa.Schema) -> pa.Table:
        """The rows of the index at (n,) ascending numbers, with the columns of a schema.

        Raises BadInput if the index lacks one.
        """
        return rows_at(self.path, rows, schema)

    def image(self, row: int) -> bytes:
        """The encoded bytes of the image at `row`.

        Raises BadInput if the tar cannot be read or the bytes do not have the index's sha256, and
        VlcpError if it is in an object store that does not give them.
        """
        rows = self._rows
        shard = rows.place[0][row]
        try:
            data = self._read(row)
            is_right = self._is_right(row, data)
            if self._is_stored and not is_right:
                self.fetch([row])
                data = self._read(row)
                is_right = self._is_right(row, data)
        except OSError as error:
            where = self.directory / rows.shards[shard]
            raise BadInput(f"{unreadable(where, error)} (key {self.keys[row]})") from error
        if not is_right:
            where = self.directory / rows.shards[shard]
            found = f"{where}: the image of key {self.keys[row]} does not match the index"
            raise BadInput(f"{found} (its sha256 differs); run 'vlcpctl check --deep'")
        return data

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
        shard, offset, size = self._rows.place
        names = self._rows.shards
        places = [(self.directory / names[shard[row]], offset[row], size[row]) for row in absent]
        if places:
            fetch_images(places)

    def _read(self, row: int) -> bytes:
        shard, offset, size = (column[row] for column in self._rows.place)
        return os.pread(self._tars.descriptor(shard), size, offset)

    def _is_right(self, row: int, data: bytes) -> bool:
        return hashlib.sha256(data).digest() == self._rows.sha256[32 * row : 32 * row + 32]


def _shard_sizes(directory: Path, listed: SplitManifest) -> dict[str, int]:
    """The size in bytes of each tar of a split.

    Raises BadInput if one is missing or does not have the size that was recorded.
    """
    for path in (directory / shard for shard in listed.shards):
        if path.is_symlink() and not path.exists():
            raise BadInput(f"{path} is a link to {path.readlink()}, which is missing{RESTORE}")
    sizes = {shard: file_size(directory / shard) for shard in listed.shards}
    for shard, written in zip(listed.shards, listed.shard_bytes, strict=True):
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
