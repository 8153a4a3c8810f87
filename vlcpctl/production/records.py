"""The JSON files of a state directory: written whole, sealed, and read without trust."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import vlcpctl
from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import without_secrets
from vlcpctl.files.inputs import converted, read_json_object
from vlcpctl.files.manifest import SEAL, check_seal, seal_of
from vlcpctl.files.outputs import new_part

STATE, WEEK, VERDICT = "vlcpctl.state/1", "vlcpctl.week/1", "vlcpctl.verdict/1"
SECONDS = "vlcpctl.seconds/1"
LATER: Mapping[str, bool] = {"later": True}  # metadata of a field that earlier versions lack
_OF_RECORD = frozenset({"schema", SEAL, "made_by"})
_MOST_BYTES = 1 << 26  # 9999 weeks with a dozen verdicts each

_T = TypeVar("_T")


def write_record(path: Path, schema: str, body: Mapping[str, Any]) -> None:
    """Write a record that replaces the old one at once. Who wrote it and when is not sealed."""
    record = {
        "schema": schema,
        **body,
        SEAL: seal_of(body),
        "made_by": {
            "version": vlcpctl.__version__,
            "argv": [without_secrets(word) for word in sys.argv],
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with new_part(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def as_json(part: Any) -> Any:
    """A dataclass that is the body of a record, or a value in it, as a JSON value.

    A field with `LATER` is left out while it has its default: earlier versions can read the record.
    """
    if is_dataclass(part):
        entries = ((one, getattr(part, one.name)) for one in fields(part))
        return {
            one.name: as_json(value)
            for one, value in entries
            if not ("later" in one.metadata and value == one.default)
        }
    return [as_json(one) for one in part] if isinstance(part, tuple) else part


def sealed_record(path: Path, schema: str) -> dict[str, Any]:
    """The JSON object of a record.

    Raises BadInput if it cannot be read, has another schema, or has changed since it was written.
    """
    found = read_json_object(path, most_bytes=_MOST_BYTES)
    if found.get("schema") != schema:
        raise BadInput(
            f"{path} has schema {found.get('schema')!r:.80}; this version reads {schema}"
        )
    check_seal(path, found, "; restore it from a backup")
    return found


def read_record(
    path: Path, schema: str, kind: type[_T], *, retired: frozenset[str] = frozenset()
) -> _T:
    """The body of a record, as the dataclass that has its fields; without `retired` ones.

    Raises BadInput as `sealed_record` does, if a field is missing or has another type, and if there
    is one that this version does not know, and would lose.
    """
    found = sealed_record(path, schema)
    body = {name: value for name, value in found.items() if name not in _OF_RECORD | retired}
    if isinstance(body.get("settings"), dict):
        body["settings"].pop("cache_size", None)  # an option of 0.3
        if body["settings"].get("unresolved") in {None, "accept"}:  # another, at its default
            body["settings"].pop("unresolved", None)
    record = converted(body, kind, path)
    later = next(fields_beyond(body, msgspec.to_builtins(record)), None)
    if later is not None:
        raise BadInput(
            f"{path} was written by a later version of vlcpctl: it has the field {later!r:.80}, "
            f"which {vlcpctl.__version__} does not know; use that version"
        )
    return record


def fields_beyond(one: Any, other: Any) -> Iterator[str]:
    """The names of fields that a JSON value has anywhere, and another one lacks there.

    >>> list(fields_beyond({"a": [{"b": 1, "c": 2}], "d": 3}, {"a": [{"b": 0}], "d": 3}))
    ['c']
    """
    if one == other:
        return
    if isinstance(one, dict):
        yield from sorted(one.keys() - other.keys())
        for name in one.keys() & other.keys():
            yield from fields_beyond(one[name], other[name])
    elif isinstance(one, list):
        for part, same in zip(one, other, strict=True):
            yield from fields_beyond(part, same)
