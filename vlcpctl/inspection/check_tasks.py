"""Check streams, tasks and buffers for damage: manifests, indexes and tars must agree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.data.images.header import KINDS
from vlcpctl.data.precomputed.features import check_features
from vlcpctl.data.tasks.facts import SplitManifest, TaskManifest, read_stream, read_task
from vlcpctl.data.tasks.index import SCHEMA, ContentId, derived, mapped_rows, read_index, rows_path
from vlcpctl.data.tasks.tars import BLOCK, END, caption_text, header
from vlcpctl.data.tasks.task import Task, is_listed, not_listed
from vlcpctl.files.digests import ALGORITHM, changed_files
from vlcpctl.files.ids import sample_key
from vlcpctl.files.inputs import naming_input, open_regular, parse_json

IndexRow = dict[str, Any]
_ROWS_AT_ONCE = 1000
_MOST_JSON_BYTES = 1 << 26


def check_stream(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a stream and its tasks; `deep` reads every byte.

    Raises BadInput if the stream's manifest cannot be read.
    """
    for entry in read_stream(path).tasks:
        task = path / entry.path
        try:
            found = read_task(task)
            if not is_listed(found, entry):
                yield not_listed(task, found.content)
            yield from check_task(task, deep=deep)
        except BadInput as error:
            yield str(error)


def check_task(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a task or buffer; `deep` reads every byte.

    Raises BadInput if the manifest cannot be read.
    """
    manifest = read_task(path)
    for name, split in manifest.splits.items():
        yield from _check_split(path, name, split, manifest, deep=deep)
        if deep:
            yield from _check_rows_file(path / f"{name}.parquet", split)
    if manifest.buffer is not None and manifest.buffer.features is not None:
        try:
            yield from check_features(Task(path, manifest), manifest.buffer.features, deep=deep)
        except BadInput as error:
            yield str(error)


def _check_split(
    directory: Path, name: str, split: SplitManifest, task: TaskManifest, *, deep: bool
) -> Iterator[str]:
    index = directory / f"{name}.parquet"
    yield from changed_files(directory, {index.name: split.index}, use_cache=not deep)
    yield from _check_shards(directory, split, are_ours=not task.in_place)
    try:
        table = read_index(index, task.kept_columns)
    except BadInput as error:
        yield str(error)
        return
    content = ContentId()
    content.add(table["key"], table["label"])
    images = captions = size = 0
    tars = _TarReader(directory, are_ours=not task.in_place)
    try:
        for rows in _rows_of(index):
            images += len(rows)
            captions += sum(len(row["captions"]) for row in rows)
            size += sum(row["size"] for row in rows)
            yield from chain.from_iterable(_check_row(tars, row, deep=deep) for row in rows)
    except BadInput as error:
        yield str(error)
        return
    finally:
        tars.close()
    for what, found in (
        ("images", images),
        ("captions", captions),
        ("content", content.hexdigest()),
        *([("bytes", size)] if task.in_place else []),
    ):
        if found != getattr(split, what):
            yield f"{index}: {what} is {found}, task.json says {getattr(split, what)}"
    unlisted = sorted(tars.named - set(split.shards))
    if unlisted:
        yield f"{index}: refers to shard {unlisted[0]!r}, which task.json does not list"


def _check_rows_file(index: Path, split: SplitManifest) -> Iterator[str]:
    """Yield that the file of rows which would be read is not of the index, if so.

    One that is missing or does not fit is made again when the task is opened.
    """
    digest = str(split.index[ALGORITHM])
    found = mapped_rows(index, digest, split.rows)
    try:
        schema, rows = derived(index, digest)
        if found and not pa.Table.from_batches(found).equals(pa.Table.from_batches(rows, schema)):
            yield f"{rows_path(index)}: does not have the rows of {index.name}; delete it"
    except BadInput as error:
        yield str(error)


def _check_shards(directory: Path, split: SplitManifest, *, are_ours: bool) -> Iterator[str]:
    total = 0
    for shard, size in zip(split.shards, split.shard_bytes, strict=True):
        path = directory / shard
        if not path.is_file():
            there = f": it is a link to {path.readlink()}" if path.is_symlink() else ""
            yield f"{path}: is missing{there}"
            return
        total += path.stat().st_size
        if are_ours and not _has_end_mark(path):
            yield f"{path}: has no end mark; it is truncated or damaged"
            return
        if size != path.stat().st_size:
            yield f"{path}: has {path.stat().st_size} bytes, task.json says {size}"
            return
    if are_ours and total != split.bytes:
        found = f"{len(split.shards)} shards have {total} bytes"
        yield f"{directory}: {found}, task.json says {split.bytes}"


def _has_end_mark(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(END)))
        return file.read() == END


def _rows_of(index: Path) -> Iterator[list[IndexRow]]:
    """The rows of an index in batches; its page checksums are verified."""
    try:
        with (
            open_regular(index) as opened,
            pq.ParquetFile(
                opened, page_checksum_verification=True, pre_buffer=False, buffer_size=2**20
            ) as file,
        ):
            missing = [field.name for field in SCHEMA if field.name not in file.schema_arrow.names]
            if missing:
                raise BadInput(f"{index}: has no column {missing[0]!r}")
            for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                yield batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInput(unreadable(index, error)) from error


class _TarReader:
    """The tars of a split, one open at a time; `named` are those that the index refers to.

    They are ours, with a .txt and a .json after each image, or those of a task made in place.
    """

    def __init__(self, directory: Path, *, are_ours: bool) -> None:
        self.named: set[str] = set()
        self.are_ours = are_ours
        self.directory, self._open = directory, ""
        self._file: BinaryIO | None = None

    def read(self, shard: str, offset: int, size: int) -> bytes | None:
        """Up to `size` bytes of a shard; None if it is missing, which `_check_shards` reports."""
        if shard != self._open:
            self.close()
            self.named.add(shard)
            path = self.directory / shard
            self._open, self._file = shard, path.open("rb") if path.is_file() else None
        if self._file is None:
            return None
        with naming_input(self.directory / shard):
            return os.pread(self._file.fileno(), size, offset) if offset >= 0 else b""

    def close(self) -> None:
        """Close the tar that is open, if any."""
        if self._file is not None:
            self._file.close()


def _check_row(tars: _TarReader, row: IndexRow, *, deep: bool) -> Iterator[str]:
    where = f"{tars.directory / row['shard']}, key {row['key']}"
    block = tars.read(row["shard"], row["offset"] - BLOCK, BLOCK)
    if block is None:
        return
    if tars.are_ours and block not in (header(row["key"], kind, row["size"]) for kind in KINDS):
        yield f"{where}: no member of that name and size at the offset in the index"
    elif deep:
        yield from _check_bytes(tars, row, where)


def _check_bytes(tars: _TarReader, row: IndexRow, where: str) -> Iterator[str]:
    image = tars.read(row["shard"], row["offset"], row["size"]) or b""
    if hashlib.sha256(image).hexdigest() != row["sha256"]:
        yield f"{where}: the image does not match the index (its sha256 differs)"
    if sample_key(row["sha256"], row["captions"]) != row["key"]:
        yield f"{where}: the key does not match the image and captions"
    if not tars.are_ours:
        return
    text = caption_text(row["captions"])
    at = row["offset"] + row["size"] + -row["size"] % BLOCK
    expected = header(row["key"], "txt", len(text)) + text
    if tars.read(row["shard"], at, len(expected)) != expected:
        yield f"{where}: the captions in the tar differ from the index"
        return
    at += len(expected) + -len(expected) % BLOCK
    if not _describes(tars, row, at):
        yield f"{where}: the .json member in the tar differs from the index"


def _describes(tars: _TarReader, row: IndexRow, at: int) -> bool:
    """Whether the .json member at offset `at` has the key and captions of the index row."""
    block = tars.read(row["shard"], at, BLOCK) or b""
    digits = block[124:135]  # the header's size field, octal
    size = int(digits, 8) if digits.isdigit() and not set(digits) & set(b"89") else 0
    if size > _MOST_JSON_BYTES or block != header(row["key"], "json", size):
        return False
    try:
        described = parse_json(tars.read(row["shard"], at + BLOCK, size) or b"")
    except ValueError:
        return False
    return isinstance(described, dict) and all(
        described.get(name) == row[name] for name in ("key", "captions")
    )
