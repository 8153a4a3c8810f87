"""Read pairs from Parquet: image bytes, Hugging Face image structs, or paths of image files."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.arrow import (
    arrow_roles,
    names_files,
    names_of,
    pairs_of_batch,
    plain,
    with_lists,
)
from vlcpctl.data.sources.class_labels import Classes, class_names, named_schema, with_classes
from vlcpctl.data.sources.columns import ColumnOptions, Roles
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.sources.limits import GROUP_RATIO, Caps, over
from vlcpctl.data.sources.records import FIRST_ROWS, LISTS
from vlcpctl.data.sources.sample_parts import (
    ERROR,
    STATUS,
    SUCCESS,
    failed_download,
)
from vlcpctl.data.tasks.samples import FAILED_DOWNLOAD, Pair
from vlcpctl.files.inputs import arrow_source, reading

_BATCH_BYTES = 8 * 2**20  # four times faster than 32 MB: the allocator reuses its pages
_BATCH_ROWS = 500
_BATCH_PATHS = 64  # rows whose images are files of their own, of unknown size
_HOLDS_NO_IMAGE = 4096  # bytes per row; larger rows contain their images
_WORTH_A_THREAD = 2**14  # bytes per row; for smaller rows the thread costs more than it saves

T = TypeVar("T")


@dataclass(frozen=True)
class ParquetFile:
    """One Parquet file of pairs."""

    path: Path

    def rows(self) -> int:
        """The number of rows, from the file's metadata. Raises BadInput if it cannot be read."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def names(self) -> list[str]:
        """The columns. Raises BadInput if the file cannot be read."""
        with self._open() as file:
            return list(self._schema(file).names)

    def check_columns(self, columns: ColumnOptions) -> None:
        """Raise BadInput if a column is missing or has the wrong type; print what it holds."""
        with self._open() as file:
            if self._roles(file, columns, images=True).lists:
                say(LISTS.format(path=self.path))

    def names_files(self, columns: ColumnOptions) -> bool:
        """Whether some images are given by path."""
        with self._open() as file:
            schema = self._schema(file)
            return names_files(schema, arrow_roles(self.path, schema, columns, images=True))

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The rows in order, in batches; with `images=False`, images and captions are not read.

        Raises BadInput if the file is damaged or a text is not UTF-8.
        """
        with self._open() as file:
            schema, classes = self._schema(file), self._classes(file)
            roles = self._roles(file, columns, images=images)
            states = [STATUS, ERROR] if _is_img2dataset(schema.names) else []
            names = list(dict.fromkeys(roles.names() + states))
            most = _BATCH_PATHS if names_files(schema, roles) else _BATCH_ROWS
            files = ImageFiles(
                columns.image_roots or (self.path.parent,), columns.log, columns.is_contained
            )
            row = 0
            for batch in self._batches(file, names, most, self._row_bytes(file, columns.caps)):
                named = with_classes(batch, classes)
                pairs = pairs_of_batch(self.path, named, roles, files, row)
                yield _with_failures(batch, pairs) if states else pairs
                row += batch.num_rows

    def failed_downloads(self) -> int:
        """The number of downloads of img2dataset that failed; 0 if it did not make the table."""
        if not _is_img2dataset(self.names()):
            return 0
        return sum(state not in (None, SUCCESS) for state in self.texts([STATUS], Caps()))

    def image_paths(self, columns: ColumnOptions) -> Iterator[str | None]:
        """The path of the image of each row; none if some rows have the bytes of theirs."""
        with self._open() as file:
            schema = self._schema(file)
            roles = arrow_roles(self.path, schema, columns, images=True)
        image = str(roles.image)
        if not names_files(schema, roles) or pa.types.is_struct(schema.field(image).type):
            return iter(())
        return self.texts([image], columns.caps)

    def texts(self, names: list[str], caps: Caps) -> Iterator[str | None]:
        """The values of these columns in every row. Raises BadInput if the file is damaged."""
        with self._open() as file:
            row_bytes = self._row_bytes(file, caps)
            for batch in self._batches(file, names, _BATCH_ROWS, row_bytes):
                with reading(self.path):
                    columns = [names_of(plain(column)) for column in batch.columns]
                yield from chain.from_iterable(columns)

    def _open(self) -> pq.ParquetFile:
        source = arrow_source(self.path)  # refuses what would block
        with reading(self.path):
            # The default reads the whole file ahead: 360 MB of memory instead of 14.
            return pq.ParquetFile(source, pre_buffer=False, buffer_size=2**20)

    def _schema(self, file: pq.ParquetFile) -> pa.Schema:
        """The schema, with text for class labels. Raises BadInput if it is malformed."""
        with reading(self.path):
            schema = file.schema_arrow
            "".join(schema.names).encode()  # decodes the names, which may not be UTF-8
            return named_schema(schema, self._classes(file))

    def _classes(self, file: pq.ParquetFile) -> Classes:
        return class_names(self.path, file.schema_arrow)

    def _roles(self, file: pq.ParquetFile, columns: ColumnOptions, *, images: bool) -> Roles:
        roles = arrow_roles(self.path, self._schema(file), columns, images=images)
        if roles.caption is None:
            return roles
        batches = file.iter_batches(FIRST_ROWS, columns=[roles.caption], use_threads=False)
        where = f"{self.path}, column {shortened(roles.caption)!r}, the first rows"
        with reading(self.path, where):
            return with_lists(roles, next(batches, None))

    def _row_bytes(self, file: pq.ParquetFile, caps: Caps) -> int:
        """Decompressed bytes of a row, in the row group with the largest rows.

        Raises BadInput for a row group that decompresses to more than the caps allow.
        """
        most, stored = 1, self.path.stat().st_size
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if group.total_byte_size > max(caps.group_bytes, GROUP_RATIO * stored):
                what = over("group-bytes", group.total_byte_size, caps.group_bytes)
                raise BadInput(f"{self.path}, of {stored} bytes, decompresses to {what}")
            most = max(most, group.total_byte_size // max(group.num_rows, 1))
        return most

    def _batches(
        self, file: pq.ParquetFile, names: list[str], most: int, row_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        most = _BATCH_ROWS if row_bytes > _HOLDS_NO_IMAGE else most
        rows = max(1, min(most, _BATCH_BYTES // row_bytes))
        batches: Iterator[pa.RecordBatch] = file.iter_batches(
            rows, columns=names, use_threads=False
        )
        if row_bytes >= _WORTH_A_THREAD:
            batches = prefetch(batches)
        row = 0
        while True:
            with reading(self.path, f"{self.path} is damaged after row {row}"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
            row += batch.num_rows


def _is_img2dataset(names: Collection[str]) -> bool:
    return STATUS in names and ERROR in names


def _with_failures(batch: pa.RecordBatch, pairs: list[Pair]) -> list[Pair]:
    """The pairs, with img2dataset's failed downloads as such: they are in no task."""
    states = zip(*(batch.column(name).to_pylist() for name in (STATUS, ERROR)), strict=True)
    found = [failed_download(*state) for state in states]
    return [
        pair
        if why is None
        else pair._replace(image=None, label=None, value=None, flaw=why, reason=FAILED_DOWNLOAD)
        for pair, why in zip(pairs, found, strict=True)
    ]


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """The same items in the same order, which must not be None, each fetched one ahead.

    It helps where fetching releases the interpreter lock, as reading and decompressing do. An
    error while fetching is raised when its item is due.

    >>> list(prefetch(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
