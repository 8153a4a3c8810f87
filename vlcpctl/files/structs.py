"""JSON of typed fields, read by msgspec: the value, or one error that names the place and field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from vlcpctl.core.errors import BadInput

_T = TypeVar("_T")
_KINDS = {
    "str": "text",
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "object": "an object",
    "array": "a list",
}
_KINDS_IN = re.compile(r"`([a-z |]+)`")
_MISSING = re.compile(r"Object missing required field `(.+)`")


def decoded(decoder: msgspec.json.Decoder[_T], text: str | bytes, place: object) -> _T:
    """The value of a JSON text; `place` (a file, or FILE:LINE) is used in messages.

    Raises BadInput, in one line, if it is no JSON object or has another form than the decoder's.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise BadInput(f"{place}: {field_error(error)}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadInput(f"{place} is not a JSON object: {error}") from error


def converted(value: object, kind: type[_T], place: object) -> _T:
    """A value of JSON as a value of a type, such as a dataclass, whose fields it has by name.

    A dataclass takes the fields that it has and ignores others. Raises BadInput, in one line, with
    `place` and the path of the field that is missing or of another type.

    >>> converted([[1, 2], [3, 4]], list[tuple[int, int]], "sizes.json")
    [(1, 2), (3, 4)]
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{place}: {field_error(error)}") from error


def field_error(error: msgspec.ValidationError) -> str:
    """What is wrong with a value of another form than its type, and in which field, in words.

    >>> try:
    ...     msgspec.json.decode('["a", 2]', type=list[str])
    ... except msgspec.ValidationError as error:
    ...     field_error(error)
    "field '[1]': expected text, got an integer"
    """
    said, _, path = str(error).partition(" - at ")
    is_key = path.startswith("`key` in ")
    place = path.removeprefix("`key` in ").strip("`").removeprefix("$").removeprefix(".")
    missing = _MISSING.fullmatch(said)
    if missing:
        return f"field {'.'.join(filter(None, (place, missing[1])))!r} is missing"
    words = _KINDS_IN.sub(
        lambda one: " or ".join(_KINDS.get(k, k) for k in one[1].split(" | ")), said
    )
    words = words[0].lower() + words[1:]
    return f"{'a key of ' if is_key else ''}field {place!r}: {words}" if place else words


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
