"""Read pairs from Parquet: image bytes, Hugging Face image structs, or paths of image files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput, first_line, unreadable
from vlcpctl.core.input_files import open_regular
from vlcpctl.core.printable import shortened
from vlcpctl.data.sources.arrow import captions_of, images_of, kept_of, names_of, plain, values_of
from vlcpctl.data.sources.columns import ColumnOptions, Roles, roles_of
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.sources.parquet_pages import PageFacts, inspect_pages
from vlcpctl.data.tasks.samples import NO_IMAGE, Pair

_BATCH_BYTES = 8 * 2**20  # four times faster than 32 MB: the allocator reuses its pages
_BATCH_ROWS = 500
_BATCH_PATHS = 64  # rows whose images are files of their own, of unknown size
_HOLDS_NO_IMAGE = 4096  # bytes per row; larger rows contain their images
_STATUS = "status"  # a column of img2dataset, whose tables include failed downloads
_WORTH_A_THREAD = 2**14  # bytes per row; for smaller rows the thread costs more than it saves
# pyarrow raises OSError for damaged files too; one from the operating system has an errno. Names
# that are not UTF-8 are a ValueError.
_DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError)

_PARTS = {"label": "label", "value": "task or time", "split": "split", "key": "key"}

T = TypeVar("T")


@dataclass(frozen=True)
class ParquetFile:
    """One Parquet file of pairs."""

    path: Path

    def rows(self) -> int:
        """The number of rows, from the file's metadata. Raises BadInput if it cannot be read."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def check_columns(self, columns: ColumnOptions) -> None:
        """Raise BadInput if a column is missing or has the wrong type."""
        with self._open() as file:
            self._roles(self._schema(file), columns, images=True)

    def names_files(self, columns: ColumnOptions) -> bool:
        """Whether some images are given by path."""
        with self._open() as file:
            schema = self._schema(file)
            return _names_files(schema, self._roles(schema, columns, images=True))

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The rows in order, in batches; with `images=False`, images and captions are not read.

        Raises BadInput if the file is damaged or a text is not UTF-8.
        """
        with self._open() as file:
            schema = self._schema(file)
            roles = self._roles(schema, columns, images=images)
            leaves_out = _is_img2dataset(schema)
            names = list(dict.fromkeys(roles.names() + [_STATUS] * leaves_out))
            most = _BATCH_PATHS if _names_files(schema, roles) else _BATCH_ROWS
            files = ImageFiles(columns.image_roots or (self.path.parent,), columns.log)
            try:
                with open_regular(self.path, buffering=0) as data:
                    facts = inspect_pages(self.path, data, file.schema, names, columns.caps)
            except _DAMAGE as error:
                raise BadInput(unreadable(self.path, error)) from error
        row = 0
        with self._open(facts.dictionaries) as file:
            for batch in self._batches(file, names, most, facts):
                pairs = self._pairs_of(batch, roles, files, row)
                yield _downloaded(batch, pairs) if leaves_out else pairs
                row += batch.num_rows

    def _open(self, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
        """The open file; the columns `dictionaries` are not expanded to one value for each row."""
        open_regular(self.path).close()  # refuses what would block
        kept = list(dictionaries) or None
        try:
            # The default reads the whole file ahead: 360 MB of memory instead of 14.
            return pq.ParquetFile(
                self.path, pre_buffer=False, buffer_size=2**20, read_dictionary=kept
            )
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise BadInput(unreadable(self.path, error)) from error

    def _schema(self, file: pq.ParquetFile) -> pa.Schema:
        """The schema. Raises BadInput if it is malformed."""
        try:
            schema = file.schema_arrow
            "".join(schema.names).encode()  # decodes the names, which may not be UTF-8
        except _DAMAGE as error:
            raise BadInput(unreadable(self.path, error)) from error
        return schema

    def _batches(
        self, file: pq.ParquetFile, names: list[str], most: int, facts: PageFacts
    ) -> Iterator[pa.RecordBatch]:
        mean = max(facts.size // max(file.metadata.num_rows, 1), 1)
        most = _BATCH_ROWS if mean > _HOLDS_NO_IMAGE else most
        rows = max(1, min(most, _BATCH_BYTES // mean, facts.most_rows))
        every = range(file.num_row_groups)
        groups = [[group] for group in every] if facts.by_group else [list(every)]
        batches: Iterator[pa.RecordBatch] = chain.from_iterable(
            file.iter_batches(rows, row_groups=group, columns=names, use_threads=False)
            for group in groups
        )
        if mean >= _WORTH_A_THREAD:
            batches = prefetch(batches)
        row = 0
        while True:
            try:
                batch = next(batches, None)
            except _DAMAGE as error:
                if isinstance(error, OSError) and error.errno:
                    raise
                raise BadInput(
                    f"{self.path} is damaged after row {row}: {first_line(error)}"
                ) from error
            if batch is None:
                return
            yield batch
            row += batch.num_rows

    def _roles(self, schema: pa.Schema, columns: ColumnOptions, *, images: bool) -> Roles:
        roles = roles_of(self.path, schema.names, columns, images=images)
        # A column that merely has a usual name is not used if its type does not fit.
        unfit: dict[str, Any] = {
            part: None
            for part, given in (("label", columns.label), ("key", None))
            if given is None
            and (name := getattr(roles, part))
            and not _is_scalar(schema.field(name).type)
        }
        roles = replace(roles, **unfit)
        if images:
            _check_types(self.path, schema, roles)
        return roles

    def _pairs_of(
        self, batch: pa.RecordBatch, roles: Roles, files: ImageFiles, first_row: int
    ) -> list[Pair]:
        count = batch.num_rows
        nothing: list[Any] = [None] * count

        def column(name: str | None, values: Callable[[pa.Array], Any]) -> Any:
            if name is None:
                return nothing
            try:
                return values(plain(batch.column(name)))
            except _DAMAGE as error:
                where = f"rows {first_row} to {first_row + count - 1}"
                kind = _shown(batch.schema.field(name).type)
                not_text = isinstance(error, UnicodeDecodeError)
                why = f"text that is not UTF-8 ({error})" if not_text else first_line(error)
                raise BadInput(
                    f"{self.path}, column {shortened(name)!r} ({kind}), {where}: {why}"
                ) from error

        captions = column(roles.caption, captions_of) if roles.caption else [[]] * count
        label = column(roles.label, names_of)
        value = column(roles.value, values_of)
        split = column(roles.split, names_of)
        key = column(roles.key, names_of)
        images, flaws = nothing, nothing
        if roles.image:
            images, flaws = column(roles.image, partial(images_of, files=files))
        places = range(first_row, first_row + count)
        kept = [column(name, kept_of) for name in roles.keep]
        kept_rows = zip(*kept, strict=True) if kept else repeat((), count)
        parts = (places, key, images, captions, label, value, split, flaws, kept_rows)
        rows = zip(*parts, repeat(NO_IMAGE, count), strict=True)
        return [tuple.__new__(Pair, row) for row in rows]  # Pair(...) is slower; see `identify`


def _check_types(path: Path, schema: pa.Schema, roles: Roles) -> None:
    image, caption = (_bare(schema.field(name).type) for name in (roles.image, roles.caption))
    if not (_is_binary(image) or _is_text(image) or _is_image_struct(image)):
        found = f"column {shortened(roles.image)!r} is {_shown(image)}"
        allowed = "images must be bytes, a struct of bytes and path, or paths"
        raise BadInput(f"{path}: {found}; {allowed} (see --image-column)")
    texts = _is_text(caption) or (_is_list(caption) and _is_text(_bare(caption.value_type)))
    if not texts:
        found = f"column {shortened(roles.caption)!r} is {_shown(caption)}"
        raise BadInput(
            f"{path}: {found}; captions must be strings or lists of strings (see --caption-column)"
        )
    for part in ("label", "value", "split", "key"):
        name = getattr(roles, part)
        if name is not None and not _is_scalar(schema.field(name).type):
            raise BadInput(
                f"{path}: column {shortened(name)!r} is {_shown(schema.field(name).type)}; "
                f"a {_PARTS[part]} must be text, a number or a date"
            )
    for name in roles.keep:
        kind = _bare(schema.field(name).type)
        of_each = kind.value_type if _is_list(kind) else kind
        if not _is_scalar(of_each):
            raise BadInput(
                f"{path}: column {shortened(name)!r} is {_shown(kind)}; a kept column must be "
                "text, numbers, booleans or dates, or lists of these (see --keep-columns)"
            )


def _shown(kind: pa.DataType) -> str:
    return shortened(" ".join(str(kind).split()))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_scalar(kind: pa.DataType) -> bool:
    """Whether each value of this type is one text, number or point in time."""
    kind = _bare(kind)
    allowed = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_decimal,
        pa.types.is_date,
        pa.types.is_time,
        pa.types.is_timestamp,
        pa.types.is_null,
    )
    return _is_text(kind) or _is_binary(kind) or any(is_one(kind) for is_one in allowed)


def _is_img2dataset(schema: pa.Schema) -> bool:
    return _STATUS in schema.names and "error_message" in schema.names


def _downloaded(batch: pa.RecordBatch, pairs: list[Pair]) -> list[Pair]:
    """The pairs without img2dataset's failed downloads, which its tars leave out too."""
    states = batch.column(_STATUS).to_pylist()
    return [pair for pair, state in zip(pairs, states, strict=True) if state in (None, "success")]


def _names_files(schema: pa.Schema, roles: Roles) -> bool:
    """Whether all or some of the images are given by path."""
    if roles.image is None:
        return False
    kind = _bare(schema.field(roles.image).type)
    return _is_text(kind) or (_is_image_struct(kind) and kind.get_field_index("path") >= 0)


def _bare(kind: pa.DataType) -> pa.DataType:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


def _is_image_struct(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    names = [field.name for field in kind]
    paths = [kind.field(place).type for place, name in enumerate(names) if name == "path"]
    return _is_binary(kind.field("bytes").type) and all(map(_is_text, paths)) and len(paths) < 2


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
