"""Python values from Arrow columns, one batch at a time, without copying image bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.data.images.header import Bytes
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.sources.kept_values import kept_text
from vlcpctl.data.sources.records import number_or_text
from vlcpctl.data.tasks.kept_columns import distinct

_ZEROS = re.compile(r"\.0+(?!\d)")
Images = tuple[list[Bytes | None], list[str | None]]
T = TypeVar("T")


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
    """The column as text; dates and numbers are formatted."""
    if pa.types.is_dictionary(column.type):
        return _spread(column, names_of)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        column = pc.cast(column, pa.string())
    names: list[str | None] = column.to_pylist()
    return names


def values_of(column: pa.Array) -> list[Any]:
    """Numbers unchanged, everything else as text (dates in ISO form, so that they sort by time)."""
    if pa.types.is_dictionary(column.type):
        return _spread(column, values_of)
    if pa.types.is_decimal(column.type) or pa.types.is_float16(column.type):
        column = pc.cast(column, pa.float64())
    if pa.types.is_uint64(column.type):  # may exceed the 64 bits of a signed integer
        return [number_or_text(number) for number in column.to_pylist()]
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return list(column.to_pylist())
    return names_of(column)


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
    if _is_text(column):
        read = [files.read(path) for path in names_of(column)]
        return [image for image, _ in read], [flaw for _, flaw in read]
    images = _views(column)
    return images, [None if image is not None else "the image is null" for image in images]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(column: pa.Array) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def _images_of_structs(column: pa.StructArray, files: ImageFiles) -> Images:
    children = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
    images = _views(plain(children["bytes"]))
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
