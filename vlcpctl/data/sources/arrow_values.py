"""Python values out of Arrow columns, a batch at a time; image bytes are not copied."""

from __future__ import annotations

import os
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.data.images import MAX_BYTES
from vlcpctl.data.pairs import Bytes

Images = tuple[list[Bytes | None], list[str | None]]


def plain(column: pa.Array) -> pa.Array:
    """The column without a dictionary and without views."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    return column


def captions_of(column: pa.Array) -> list[list[str]]:
    """The captions of each row, none for a null."""
    values = column.to_pylist()
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return [[text for text in texts or () if text is not None] for texts in values]
    return [[] if text is None else [text] for text in values]


def names_of(column: pa.Array) -> list[str | None]:
    """The column as text; dates and numbers are written out."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        column = pc.cast(column, pa.string())
    names: list[str | None] = column.to_pylist()
    return names


def values_of(column: pa.Array) -> list[Any]:
    """Numbers as they are, everything else as text that sorts as it should."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return list(column.to_pylist())
    return names_of(column)


def images_of(column: pa.Array, beside: Path) -> Images:
    """The bytes of each image, or None with the reason; paths are looked up beside the file."""
    if pa.types.is_struct(column.type):
        return _images_of_structs(column, beside)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        images = _views(column)
        return images, [None if image is not None else "the image is null" for image in images]
    read = [_read_image(beside, path) for path in column.to_pylist()]
    return [image for image, _ in read], [flaw for _, flaw in read]


def _images_of_structs(column: pa.StructArray, beside: Path) -> Images:
    children = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
    images = _views(plain(children["bytes"]))
    paths = plain(children["path"]).to_pylist() if "path" in children else [None] * len(images)
    flaws: list[str | None] = [None] * len(images)
    for row, image in enumerate(images):
        if image is None:
            images[row], flaws[row] = _read_image(beside, paths[row])
    return images, flaws


def _views(column: pa.Array) -> list[Bytes | None]:
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    if data is None:
        return [b"" if valid else None for valid in column.is_valid().to_pylist()]
    ends = np.frombuffer(
        offsets, width, len(column) + 1, column.offset * np.dtype(width).itemsize
    ).tolist()
    view = memoryview(data).cast("B")
    views: list[Bytes | None] = [view[start:end] for start, end in pairwise(ends)]
    if column.null_count:
        valid = column.is_valid().to_pylist()
        return [one if there else None for one, there in zip(views, valid, strict=True)]
    return views


def _read_image(beside: Path, name: str | None) -> tuple[bytes | None, str | None]:
    if not name:
        return None, "neither image bytes nor a path"
    if "://" in name or "\0" in name or name.startswith("pipe:"):
        return None, f"{name!r} is not a file path"
    try:
        # Without O_NONBLOCK a named pipe in the list would stop the program for ever.
        descriptor = os.open(beside / name, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                return None, f"{name} is not a regular file"
            if facts.st_size > MAX_BYTES:
                return None, f"{name} has {facts.st_size} bytes, the limit is {MAX_BYTES}"
            return file.read(), None
    except OSError as error:
        return None, f"{name} cannot be read: {error.strerror}"
