"""What the values of a column of times mean: numbers of one unit, ISO 8601, or a given format.

A time that is text has a key: the time in UTC, as text whose order is that of time whatever its
precision. What is not written is the earliest, so that 2023-10 is the start of 2023-10-01, and a
time without a zone is in UTC.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

from vlcpctl.core.errors import UsageError
from vlcpctl.data.sources.pairs import kept_text

Value = str | int | float
KeyOf = Callable[[Value], Value | None]  # the key of a value; None if it is not a time

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_DIGITS = 18  # of a number with a sign of 64 bits
_COARSE = re.compile(r"\d{4}(-\d\d)?", re.ASCII)  # a year, or a month of it
_YEARS = ("%Y", "%y", "%G", "%c", "%x")
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_EPOCH = range(10**8, 5 * 10**9)  # in seconds: the years 1973 to 2128
_OTHER_UNITS = {"years": range(1900, 2101), "dates": range(19000101, 21001232)}


def number_of(value: Value) -> int | float | None:
    """The number that a value is or spells, such as 9 for "09"; None for other text."""
    if not isinstance(value, str):
        return value
    match = _NUMBER.fullmatch(value.strip())
    if match is None:
        return None
    if not any(match.groups()) and len(match[0]) <= _DIGITS:
        return int(match[0])
    number = float(match[0])
    return number if math.isfinite(number) else None


def iso_time(value: Value) -> str | None:
    """The key of a time in ISO 8601, to the microsecond; None for other text.

    >>> iso_time("2023-10"), iso_time("2023-10-05T01:30+02:00"), iso_time("2023-9")
    ('2023-10-01 00:00:00', '2023-10-04 23:30:00', None)
    """
    text = (kept_text(value) or "").strip()
    if coarse := _COARSE.fullmatch(text):  # which Python does not read
        text += "-01" if coarse[1] else "-01-01"
    try:
        return _key(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _key(found: datetime) -> str:
    return str(found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found)


def time_in(form: str) -> KeyOf:
    """The function that gives the key of a time in a format of `strptime`.

    Raises UsageError if it is not such a format or has no year.
    """
    zone = "" if "%z" in form else " +0000"

    def key_of(value: Value) -> str | None:
        text, signs = f"{kept_text(value)}{zone}", f"{form} %z" if zone else form
        try:
            return _key(datetime.strptime(text, signs).astimezone(UTC))
        except (ValueError, OverflowError):
            return None

    try:
        example = datetime(2023, 10, 5, tzinfo=UTC).strftime(form)
        is_known = any(year in form for year in _YEARS) and key_of(example)
    except (ValueError, re.error):  # strptime does not catch a sign that is there twice
        is_known = None
    if not is_known:
        raise UsageError(f"--time-format {form!r} is not a format with a year, such as %d.%m.%Y")
    return key_of


def unit_of(number: float) -> str | None:
    """The unit in which a number is a time of these years; None for others, such as 9."""
    for unit, scale in _UNITS.items():
        if _EPOCH.start * scale <= number < _EPOCH.stop * scale:
            return unit
    return next((unit for unit, times in _OTHER_UNITS.items() if number in times), None)


def shown(key: Value) -> str:
    """A key for people: without midnight, and seconds since 1970 as a time.

    >>> shown("2023-10-05 00:00:00"), shown(1696464000), shown(9)
    ('2023-10-05', '2023-10-05', '9')
    """
    if not isinstance(key, str):
        scale = _UNITS.get(unit_of(key) or "")
        if scale is None:
            return str(key)
        key = str(datetime.fromtimestamp(key // scale, UTC).replace(tzinfo=None))
    return key.removesuffix(" 00:00:00")
