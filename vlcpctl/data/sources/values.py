"""What the values of a record mean: as text, as a number that sorts, as captions, as kept text."""

from __future__ import annotations

import ast
import json
import math
import re
from typing import Any, NamedTuple

from vlcpctl.core.words import shortened
from vlcpctl.data.tasks.samples import KeptValues, distinct

_WHOLE = 2**53  # up to here, a float stands for exactly one whole number
# A text as Python and NumPy print it in a list, with the escapes that they write.
_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[\da-f]{2}|u[\da-f]{4}|U00(?:0[\da-f]|10)[\da-f]{4})"
_TEXT = rf"""u?'(?:[^'\\\n]|{_ESCAPE})*'|u?"(?:[^"\\\n]|{_ESCAPE})*\""""
_LIST = re.compile(rf"\[\s*(?:(?:{_TEXT})(?:\s*,)?\s*)*\]")


class Typed(NamedTuple):
    """A value of a typed table that is neither text nor integer: a number, date or truth value."""

    value: str | int | float  # that decides the task
    text: str
    kept: str


def text_of(value: object) -> str | None:
    """A scalar field as text; None if it is missing, a list or an object."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Typed):
        return value.text
    if isinstance(value, bytes | memoryview):
        return str(value, "utf-8")
    return None if _is_missing(value) or isinstance(value, list | dict) else str(value)


def value_of(value: object) -> str | int | float | None:
    """A field that decides the task: a number stays one, so that it sorts by value; else text."""
    if isinstance(value, Typed):
        return value.value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    return text_of(value)


def number_in(value: Any) -> Any:
    """The number that a text spells, so that 9 sorts before 10; any other value unchanged.

    >>> number_in("9"), number_in("0.5"), number_in("007"), number_in("2024-01-01")
    (9, 0.5, '007', '2024-01-01')
    """
    for kind in (int, float) if isinstance(value, str) else ():
        try:
            number = kind(value)
        except ValueError:
            continue
        if str(number) == value and abs(number) < 2**63:
            return number
    return value


def kept_text(value: object) -> str | None:
    """A scalar as text, the same for every kind of source; None if it is missing or empty.

    >>> kept_text(42), kept_text(42.0), kept_text(0.5), kept_text(True), kept_text("")
    ('42', '42', '0.5', 'true', None)
    """
    if isinstance(value, Typed):
        return value.kept or None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)
    return text_of(value) or None


def kept_values(record: dict[str, Any], names: tuple[str, ...]) -> tuple[KeptValues, str | None]:
    """The distinct values of the kept columns of a record, as text, and None.

    If one is an object or a list of lists, which has no plain text: (), and the reason.
    """
    kept = []
    for name in names:
        values = record.get(name)
        values = values if isinstance(values, list) else [values]
        if any(isinstance(one, list | dict) for one in values):
            return (), f"its {name!r:.80} is an object or a nested list, which cannot be kept"
        kept.append(distinct(map(kept_text, values)))
    return tuple(kept), None


def captions_in(value: object) -> tuple[list[str], str | None]:
    """The texts of a field that is a text or a list, and what is wrong if one is not text.

    >>> captions_in(["a cat", None]), captions_in(["a cat", 5])
    ((['a cat'], None), ([], 'a caption is 5, not text'))
    """
    found: list[str] = []
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            found.append(one)
        elif not _is_missing(one):
            shown = one.text if isinstance(one, Typed) else repr(one)
            if isinstance(one, memoryview):
                shown = repr(bytes(one))
            return [], f"a caption is {shortened(shown)}, not text"
    return found, None


def listed_in(text: str) -> list[str] | None:
    """The texts of a list that is spelled as JSON, Python or NumPy print it; None for other text.

    >>> listed_in('["a", null]'), listed_in("['a', 'b']"), listed_in("['a' 'b']"), listed_in("[a]")
    (['a'], ['a', 'b'], ['a', 'b'], None)
    """
    text = text.strip()
    if text[:1] != "[" or text[-1:] != "]":
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        if not _LIST.fullmatch(text):
            return None
        # One by one: to Python, 'a' 'b' is a single text.
        found = [ast.literal_eval(one) for one in re.findall(_TEXT, text)]
    texts, no_text = captions_in(found)
    return None if no_text or not all(map(is_unicode, texts)) else texts


def is_unicode(value: object) -> bool:
    """Whether a value can be encoded as UTF-8; True for values that are not text."""
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_missing(value: object) -> bool:
    """Whether a value is None or NaN, which pandas writes for a missing one."""
    return value is None or (isinstance(value, float) and math.isnan(value))
