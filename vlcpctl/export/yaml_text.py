"""YAML for the header of a card: nested mappings, lists and plain values.

PyYAML is not a dependency; texts are written as JSON, which is YAML, so that none is mistaken for
a number, a date or `no`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")
# How JSON escapes a character beyond U+FFFF, such as an emoji; in YAML these would be two of them.
_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
_NOT_NAMES = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def front_matter(fields: Mapping[str, Any]) -> str:
    """The header of a Markdown file that the Hugging Face hub reads.

    >>> print(front_matter({"license": "unknown", "tags": ["clip"]}))
    ---
    license: "unknown"
    tags:
    - "clip"
    ---
    """
    return "\n".join(["---", *_lines(fields), "---"])


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _entry(f"{_name(name)}:", one)
    else:
        for one in value:
            nested = list(_lines(one)) if _is_nested(one) else [_plain(one)]
            yield f"- {nested[0]}"
            yield from (f"  {line}" for line in nested[1:])


def _entry(name: str, value: Any) -> Iterator[str]:
    if not _is_nested(value):
        yield f"{name} {_plain(value)}"
        return
    yield name
    margin = "  " if isinstance(value, Mapping) else ""
    yield from (f"{margin}{line}" for line in _lines(value))


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and bool(value)


def _plain(value: Any) -> str:
    return _PAIR.sub(_one_escape, json.dumps(value, ensure_ascii=True))


def _one_escape(pair: re.Match[str]) -> str:
    character: str = json.loads('"' + pair[0] + '"')
    return f"\\U{ord(character):08x}"


def _name(name: str) -> str:
    is_plain = _PLAIN_NAME.fullmatch(name) and name.lower() not in _NOT_NAMES
    return name if is_plain else _plain(name)
