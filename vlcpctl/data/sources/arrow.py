"""Pairs from Arrow record batches: which columns they need, and the Python values of each.

A batch is converted column by column; image bytes are not copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.images.header import Bytes
from vlcpctl.data.sources.columns import ColumnOptions, Roles, roles_of
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.sources.records import (
    FIRST_ROWS,
    are_lists,
    kept_text,
    number_or_text,
    spread,
)
from vlcpctl.data.tasks.kept_columns import distinct
from vlcpctl.data.tasks.samples import NO_IMAGE, Pair
from vlcpctl.files.inputs import reading

_ZEROS = re.compile(r"\.0+(?!\d)")
Images = tuple[list[Bytes | None], list[str | None]]
T = TypeVar("T")
_PARTS = {"label": "label", "value": "task or time", "split": "split", "key": "key"}


def arrow_roles(path: Path, schema: pa.Schema, columns: ColumnOptions, *, images: bool) -> Roles:
    """The column for each role, as `roles_of`; raises BadInput for a type that does not fit."""
    roles = roles_of(path, schema.names, columns, images=images)
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
        _check_types(path, schema, roles)
    return roles


def with_lists(roles: Roles, first: pa.RecordBatch | None) -> Roles:
    """The roles; with a note if the captions of the first rows are lists spelled as text."""
    if first is None or not _is_text(_bare(first.schema.field(roles.caption).type)):
        return roles
    captions = captions_of(plain(first.column(roles.caption).slice(0, FIRST_ROWS)))
    return replace(roles, lists=are_lists(chain.from_iterable(captions)))


def pairs_of_batch(
    path: Path,
    batch: pa.RecordBatch,
    roles: Roles,
    files: ImageFiles,
    first_row: int,
    split: str | None = None,
) -> list[Pair]:
    """The pairs of the rows, which are numbered from `first_row`; image bytes are not copied.

    Without a column for it, every pair has the split `split`. Raises BadInput, naming the column,
    for values that cannot be read.
    """
    count = batch.num_rows
    nothing: list[Any] = [None] * count

    def column(name: str | None, values: Callable[[pa.Array], Any]) -> Any:
        if name is None:
            return nothing
        where = f"rows {first_row} to {first_row + count - 1}"
        kind = _shown(batch.schema.field(name).type)
        with reading(path, f"{path}, column {shortened(name)!r} ({kind}), {where}"):
            try:
                return values(plain(batch.column(name)))
            except UnicodeDecodeError as error:
                raise ValueError(f"text that is not UTF-8 ({error})") from error

    captions = column(roles.caption, captions_of) if roles.caption else [[]] * count
    if roles.lists:
        captions = list(map(spread, captions))
    label = column(roles.label, names_of)
    value = column(roles.value, values_of)
    splits = column(roles.split, names_of) if roles.split else [split] * count
    key = column(roles.key, names_of)
    images, flaws = nothing, nothing
    if roles.image:
        images, flaws = column(roles.image, partial(images_of, files=files))
    places = range(first_row, first_row + count)
    kept = [column(name, kept_of) for name in roles.keep]
    kept_rows = zip(*kept, strict=True) if kept else repeat((), count)
    parts = (places, key, images, captions, label, value, splits, flaws, kept_rows)
    rows = zip(*parts, repeat(NO_IMAGE, count), repeat(None, count), strict=True)
    return [tuple.__new__(Pair, row) for row in rows]  # Pair(...) is slower; see `identify`


def names_files(schema: pa.Schema, roles: Roles) -> bool:
    """Whether all or some of the images are given by path."""
    if roles.image is None:
        return False
    kind = _bare(schema.field(roles.image).type)
    if not _is_image_struct(kind):
        return _is_text(kind)
    return any(field.name == "path" and not pa.types.is_null(field.type) for field in kind)


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


def plain(column: pa.Array) -> pa.Array:
    """The column without extension types, and with views cast to plain strings and bytes."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    return column


def _spread(column: pa.Array, values: Callable[[pa.Array], list[T]]) -> list[T | None]:
    """The Python values of a dictionary column; equal ones are one object, however many rows."""
    known = values(plain(column.dictionary))
    return [None if index is None else known[index] for index in column.indices.to_pylist()]


def captions_of(column: pa.Array) -> list[list[str]]:
    """The captions of each row; an empty list for a null."""
    if _is_list(column.type):
        ends = column.offsets.to_pylist()
        first = ends[0]  # the offsets of a slice count from the start of what it is a slice of
        texts = names_of(plain(column.values.slice(first, ends[-1] - first)))
        valid = column.is_valid().to_pylist()
        return [
            [text for text in texts[start - first : end - first] if text is not None]
            if there
            else []
            for (start, end), there in zip(pairwise(ends), valid, strict=True)
        ]
    return [[] if text is None else [text] for text in names_of(column)]


def names_of(column: pa.Array) -> list[str | None]:
    """The column as text; dates and numbers are formatted, and NaN is missing."""
    if pa.types.is_dictionary(column.type):
        return _spread(column, names_of)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        column = pc.cast(_without_nan(column), pa.string())
    names: list[str | None] = column.to_pylist()
    return names


def values_of(column: pa.Array) -> list[Any]:
    """Numbers unchanged but for NaN, which is missing; all else as text (dates in ISO form)."""
    if pa.types.is_dictionary(column.type):
        return _spread(column, values_of)
    if pa.types.is_decimal(column.type) or pa.types.is_float16(column.type):
        column = pc.cast(column, pa.float64())
    if pa.types.is_uint64(column.type):  # may exceed the 64 bits of a signed integer
        return [number_or_text(number) for number in column.to_pylist()]
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return list(_without_nan(column).to_pylist())
    return names_of(column)


def _without_nan(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def kept_of(column: pa.Array) -> list[tuple[str, ...]]:
    """The distinct values of each row of a kept column, of scalars or of lists, as text."""
    if _is_list(column.type):
        ends = column.offsets.to_pylist()
        first = ends[0]  # see `captions_of`
        parts = _kept_texts(plain(column.values.slice(first, ends[-1] - first)))
        valid = column.is_valid().to_pylist()
        return [
            distinct(parts[start - first : end - first]) if there else ()
            for (start, end), there in zip(pairwise(ends), valid, strict=True)
        ]
    return [() if text is None else (text,) for text in _kept_texts(column)]


def _kept_texts(column: pa.Array) -> list[str | None]:
    if pa.types.is_dictionary(column.type):
        return _spread(column, _kept_texts)
    if pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return [kept_text(value) for value in column.to_pylist()]  # Arrow writes 1e9 for 10**9
    texts = names_of(column)
    if pa.types.is_timestamp(column.type):  # a fraction of zeros only shows the column's unit
        texts = [text and _ZEROS.sub("", text) for text in texts]
    return [text or None for text in texts]


def images_of(column: pa.Array, files: ImageFiles) -> Images:
    """The bytes of each image (None if missing), and the reason for each that is missing."""
    if pa.types.is_struct(column.type):
        return _images_of_structs(column, files)
    if _is_text(_bare(column.type)):
        read = [files.read(path) for path in names_of(column)]
        return [image for image, _ in read], [flaw for _, flaw in read]
    images = _views(column)
    return images, [None if image is not None else "the image is null" for image in images]


def _images_of_structs(column: pa.StructArray, files: ImageFiles) -> Images:
    children = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
    stored = plain(children["bytes"])
    images = _views(stored.cast(pa.binary()) if pa.types.is_null(stored.type) else stored)
    paths = names_of(plain(children["path"])) if "path" in children else [None] * len(images)
    flaws: list[str | None] = [None] * len(images)
    for row, image in enumerate(images):
        if image is None:
            images[row], flaws[row] = files.read(paths[row])
    return images, flaws


def _views(column: pa.Array) -> list[Bytes | None]:
    if pa.types.is_dictionary(column.type):
        return _spread(column, _views)
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    if data is None:
        return [b"" if valid else None for valid in column.is_valid().to_pylist()]
    # Slices of Arrow's own buffer, so that image bytes are not copied.
    ends = np.frombuffer(
        offsets, width, len(column) + 1, column.offset * np.dtype(width).itemsize
    ).tolist()
    view = memoryview(data).cast("B")
    views: list[Bytes | None] = [view[start:end] for start, end in pairwise(ends)]
    if column.null_count:
        valid = column.is_valid().to_pylist()
        return [one if there else None for one, there in zip(views, valid, strict=True)]
    return views


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
    # The type of a field that is null in every row is null.
    stored = [field.type for field in kind if field.name == "bytes"]
    paths = [field.type for field in kind if field.name == "path"]
    fit = all(_is_binary(one) or pa.types.is_null(one) for one in stored)
    fit = fit and all(_is_text(one) or pa.types.is_null(one) for one in paths)
    some = any(not pa.types.is_null(one) for one in stored + paths)
    return fit and some and len(stored) == 1 and len(paths) < 2
