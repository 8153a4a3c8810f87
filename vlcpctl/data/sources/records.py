"""Make pairs from records (JSON objects, rows of text tables), and group pairs into batches."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from vlcpctl.core.words import shortened
from vlcpctl.data.sources.columns import Roles
from vlcpctl.data.tasks.kept_columns import distinct
from vlcpctl.data.tasks.samples import NO_TEXT, KeptValues, Pair

Record = dict[str, Any]

_BATCH_BYTES = 8 * 2**20
_BATCH_PAIRS = 1000
_WHOLE = 2**53  # up to here, a float stands for exactly one whole number
LISTS = "{path}: its captions are lists that are spelled as text; they are read as lists"
FIRST_ROWS = 100  # that tell what a column holds
# A text as Python and NumPy print it in a list, with the escapes that they write.
_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[\da-f]{2}|u[\da-f]{4}|U00(?:0[\da-f]|10)[\da-f]{4})"
_TEXT = rf"""u?'(?:[^'\\\n]|{_ESCAPE})*'|u?"(?:[^"\\\n]|{_ESCAPE})*\""""
_LIST = re.compile(rf"\[\s*(?:(?:{_TEXT})(?:\s*,)?\s*)*\]")


def pair_of(place: str | int, record: Record, roles: Roles) -> Pair:
    """The pair that a record describes, without its image; with a flaw if a text is not Unicode."""

    def field(name: str | None) -> Any:
        return None if name is None else record.get(name)

    captions, no_text = captions_in(field(roles.caption))
    captions = spread(captions) if roles.lists else captions
    if no_text:
        return Pair(place, None, None, [], None, None, None, no_text, reason=NO_TEXT)
    key, label, split = (text_of(field(name)) for name in (roles.key, roles.label, roles.split))
    value = number_or_text(field(roles.value))
    kept, flaw = kept_of_record(record, roles.keep)
    texts = (*captions, key, label, split, value, *chain(*kept))
    if not all(map(is_unicode, texts)):
        captions, key, label, split, value, kept = [], None, None, None, None, ()
        flaw = "text with a lone surrogate, which UTF-8 cannot encode"
    return Pair(place, key, None, captions, label, value, split, flaw, kept)


def captions_in(value: object) -> tuple[list[str], str | None]:
    """The texts of a field that is a text or a list, and what is wrong if one is not text.

    >>> captions_in(["a cat", None]), captions_in(["a cat", 5])
    ((['a cat'], None), ([], 'a caption is 5, not text'))
    """
    found: list[str] = []
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            found.append(one)
        elif not is_missing(one):
            return [], f"a caption is {shortened(repr(one))}, not text"
    return found, None


def are_lists(captions: Iterable[str]) -> bool:
    """Whether there are captions, and each of them is a list of texts that is spelled as text."""
    found = [text for text in captions if text.strip()]
    return bool(found) and all(listed_in(text) is not None for text in found)


def spread(captions: list[str]) -> list[str]:
    """The captions, with its texts in place of each that spells a list."""
    lists = [listed_in(text) for text in captions]
    return [
        one
        for text, found in zip(captions, lists, strict=True)
        for one in ([text] if found is None else found)
    ]


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


def kept_of_record(
    record: Mapping[str, Any], names: Sequence[str]
) -> tuple[KeptValues, str | None]:
    """The values of the kept columns of a JSON object or table row, and None.

    If one is an object or a list of lists, which has no plain text: (), and the reason.
    """
    kept = []
    for name in names:
        value = record.get(name)
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list) for one in values):
            return (), f"its {name!r:.80} is an object or a nested list, which cannot be kept"
        kept.append(distinct(map(kept_text, values)))
    return tuple(kept), None


def is_missing(value: object) -> bool:
    """Whether a value is None or NaN, which pandas writes for a missing one."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def kept_text(value: object) -> str | None:
    """A scalar as text, the same for every kind of source; None if it is missing or empty.

    >>> kept_text(42), kept_text(42.0), kept_text(0.5), kept_text(True), kept_text("")
    ('42', '42', '0.5', 'true', None)
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)
    return None if is_missing(value) else str(value) or None


def text_of(value: object) -> str | None:
    """A scalar field as text; None if it is missing, a list or an object."""
    return None if is_missing(value) or isinstance(value, list | dict) else str(value)


def number_or_text(value: object) -> str | int | float | None:
    """A field that decides the task: a number stays one, so that it sorts by value; else text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    return text_of(value)


def is_unicode(value: object) -> bool:
    """Whether a value can be encoded as UTF-8; True for values that are not text."""
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """The pairs in batches of at most 1,000 pairs, or of 8 MiB of images (and the last one)."""
    batch: list[Pair] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += len(pair.image or b"")
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_PAIRS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
