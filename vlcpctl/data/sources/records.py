"""Pairs out of records: JSON objects and rows of text, each field read as plainly as it stands."""

from __future__ import annotations

from typing import Any

from vlcpctl.data.pairs import Pair
from vlcpctl.data.sources.columns import Roles

Record = dict[str, Any]


def pair_of(place: str | int, record: Record, roles: Roles) -> Pair:
    """The pair that a record describes, without its image; a flaw where its text is none."""

    def field(name: str | None) -> Any:
        return None if name is None else record.get(name)

    captions = listed(field(roles.caption))
    key, label, split = (text_of(field(name)) for name in (roles.key, roles.label, roles.split))
    value = number_or_text(field(roles.value))
    flaw = None
    if not all(map(is_unicode, (*captions, key, label, split, value))):
        captions, key, label, split, value = [], None, None, None, None
        flaw = "text with half a surrogate pair, which cannot be written anywhere"
    return Pair(place, key, None, captions, label, value, split, flaw)


def listed(value: object) -> list[str]:
    """The texts of a field that holds one or several."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def text_of(value: object) -> str | None:
    """A field as text; None where it is missing or holds other fields."""
    return None if value is None or isinstance(value, list | dict) else str(value)


def number_or_text(value: object) -> str | int | float | None:
    """A field that decides a task: numbers keep their order, everything else is text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    return text_of(value)


def is_unicode(value: object) -> bool:
    """Whether a text can be written as UTF-8; what is no text can."""
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        return False
    return True
