"""JSON of unknown origin: whatever the text, a value within bounds or one error that says why.

The bounds are those of files that vlcpctl writes, with room to spare: nesting up to MOST_DEPTH,
integers of 64 bits, text that UTF-8 can encode (no lone surrogates), files up to MOST_BYTES.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from vlcpctl.core.errors import BadInput, unreadable

MOST_DEPTH = 100
MOST_BYTES = 1 << 28

_MORE_THAN_64_BITS = "it contains an integer of more than 64 bits"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # perhaps half of a pair
_SAFE_DIGITS = 18  # with a sign or without, these fit into 64 bits


def parse_json(text: str | bytes, *, finite: bool = False, unique: bool = False) -> Any:
    """The value of a JSON text. Raises ValueError, whose message says what is wrong.

    With `finite`, the words NaN and Infinity are refused as the JSON standard requires, and numbers
    such as 1e999 that Python reads as infinite; with `unique`, an object that has a key twice, of
    which Python would keep the last.

    >>> parse_json("[" * 500 + "]" * 500)
    Traceback (most recent call last):
    ValueError: it is nested more than 100 levels deep
    """
    words = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        value = json.loads(
            words,
            parse_int=_integer,
            parse_float=_finite_float if finite else None,
            parse_constant=_refuse_constant if finite else None,
            object_pairs_hook=_with_unique_keys if unique else None,
        )
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep") from None
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):  # of Python, 4300 digits
            raise ValueError(_MORE_THAN_64_BITS) from error
        raise
    may_be_cut = "\\u" in words and _SURROGATE.search(words) is not None
    if may_be_cut or words.count("[") + words.count("{") > MOST_DEPTH:
        _check(value, (dict, list, str) if may_be_cut else (dict, list))
    return value


def read_json(path: Path, *, most_bytes: int = MOST_BYTES) -> Any:
    """The value in a JSON file. Raises BadInput, naming the file, if it cannot be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(f"cannot read {path}: it is not a regular file")
        if found.st_size > most_bytes:
            raise BadInput(f"cannot read {path}: it has {found.st_size} bytes, over {most_bytes}")
        return parse_json(path.read_bytes())
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    except ValueError as error:
        raise BadInput(f"{path} is not readable JSON: {error}") from error


def read_json_object(path: Path, *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The object in a JSON file. Raises BadInput, naming the file, if there is none."""
    value = read_json(path, most_bytes=most_bytes)
    if not isinstance(value, dict):
        raise BadInput(f"{path} is not a JSON object, it is a {type(value).__name__}")
    return value


def _check(value: Any, kinds: tuple[type, ...]) -> None:
    """Raise ValueError for a value of these kinds that is too deep or not text."""
    # Without recursion; numbers, which may be many, are passed over.
    waiting = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if depth > MOST_DEPTH and one and not isinstance(one, str):
            raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep")
        if isinstance(one, dict):
            waiting += [(part, depth + 1) for part in one.values() if isinstance(part, kinds)]
            waiting += [(key, depth + 1) for key in one if str in kinds]
        elif isinstance(one, list):
            waiting += [(part, depth + 1) for part in one if isinstance(part, kinds)]
        elif isinstance(one, str):
            _check_text(one)


def _integer(text: str) -> int:
    number = int(text)
    if len(text) > _SAFE_DIGITS and not -(2**63) <= number < 2**63:
        raise ValueError(_MORE_THAN_64_BITS)
    return number


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("it contains a number that is too large")
    return number


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it contains half of a surrogate pair, which is not text") from error


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        again = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"it has the key {again!r:.80} more than once")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
