"""Pairs from Arrow record batches: which columns they need, of which types, and one per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa

from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.core.input_files import naming_input
from vlcpctl.core.printable import shortened
from vlcpctl.data.sources.arrow import captions_of, images_of, kept_of, names_of, plain, values_of
from vlcpctl.data.sources.columns import ColumnOptions, Roles, roles_of
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.tasks.samples import NO_IMAGE, Pair

# pyarrow raises OSError for damaged files too; one from the operating system has an errno. Names
# that are not UTF-8 are a ValueError.
DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError)


def raise_system_error(path: Path, error: BaseException) -> None:
    """Raise an error of the operating system that is among `DAMAGE`, with its file."""
    if isinstance(error, OSError) and error.errno:
        with naming_input(path):
            raise error


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
        try:
            return values(plain(batch.column(name)))
        except DAMAGE as error:
            where = f"rows {first_row} to {first_row + count - 1}"
            kind = _shown(batch.schema.field(name).type)
            not_text = isinstance(error, UnicodeDecodeError)
            why = f"text that is not UTF-8 ({error})" if not_text else first_line(error)
            raise BadInput(
                f"{path}, column {shortened(name)!r} ({kind}), {where}: {why}"
            ) from error

    captions = column(roles.caption, captions_of) if roles.caption else [[]] * count
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
    rows = zip(*parts, repeat(NO_IMAGE, count), strict=True)
    return [tuple.__new__(Pair, row) for row in rows]  # Pair(...) is slower; see `identify`


def names_files(schema: pa.Schema, roles: Roles) -> bool:
    """Whether all or some of the images are given by path."""
    if roles.image is None:
        return False
    kind = _bare(schema.field(roles.image).type)
    return _is_text(kind) or (_is_image_struct(kind) and kind.get_field_index("path") >= 0)


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
