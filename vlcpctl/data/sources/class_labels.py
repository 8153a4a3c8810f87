"""Names of classes, which `datasets` stores as numbers, with the names in the schema's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from vlcpctl.core.errors import BadInput
from vlcpctl.files.inputs import parse_json

_FEATURES = b"huggingface"  # the metadata in which `datasets` writes its own types
Classes = Mapping[str, Sequence[str]]


def class_names(path: Path, schema: pa.Schema) -> Classes:
    """The names of the classes of each column of labels, or of lists of labels.

    Raises BadInput if the metadata of the schema cannot be read.
    """
    text = (schema.metadata or {}).get(_FEATURES)
    if text is None:
        return {}
    try:
        described = parse_json(text)
    except ValueError as error:
        raise BadInput(f"{path}: the types of its columns are not readable: {error}") from error
    features = _inside(_inside(described, "info"), "features")
    found = {}
    for field in schema:
        feature = features.get(field.name)
        is_list = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
        if is_list:  # written as [label], or as an object with it
            feature = feature[0] if isinstance(feature, list) else _inside(feature, "feature")
        label = feature if isinstance(feature, dict) else {}
        names = label.get("names") if label.get("_type") == "ClassLabel" else None
        kind = field.type.value_type if is_list else field.type
        texts = [one for one in names if isinstance(one, str)] if isinstance(names, list) else []
        if texts and texts == names and pa.types.is_integer(kind):
            found[field.name] = texts
    return found


def named_schema(schema: pa.Schema, classes: Classes) -> pa.Schema:
    """The schema, with text for columns of labels."""
    return pa.schema(
        [
            field.with_type(_named_type(field.type)) if field.name in classes else field
            for field in schema
        ]
    )


def with_classes(batch: pa.RecordBatch, classes: Classes) -> pa.RecordBatch:
    """The batch, with the names of labels; null for a number without one, such as the usual -1."""
    for place, name in enumerate(batch.schema.names):
        if name in classes:
            column = batch.column(place)
            texts = [_named(value, classes[name]) for value in column.to_pylist()]
            batch = batch.set_column(place, name, pa.array(texts, _named_type(column.type)))
    return batch


def _named_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_integer(kind) else pa.list_(pa.string())


def _named(label: Any, names: Sequence[str]) -> Any:
    if isinstance(label, list):
        return [_named(one, names) for one in label]
    return names[label] if label is not None and 0 <= label < len(names) else None


def _inside(value: object, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
