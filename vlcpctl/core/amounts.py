"""Numbers, times and sizes as people read and write them.

Python's `float` and `int` take more than a person means: nan, inf, 1_0, digits of any script. Every
number of the command line is parsed here.
"""

from __future__ import annotations

import math
import re

from vlcpctl.core.printable import shortened

LARGEST = 2**63 - 1  # of whole numbers: larger ones fit neither Arrow's columns nor torch's seeds

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_FEW = 10  # seconds below which a tenth counts
_K = 1000
_SIZES = ("kB", "MB", "GB", "TB")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST_CHARACTERS = 30  # of a number; one of hundreds of digits would be infinite as a float


def duration(seconds: float) -> str:
    """A time in its two largest units.

    >>> duration(3.25), duration(59.7), duration(200), duration(7512), duration(100_000)
    ('3.2 s', '1 min', '3 min 20 s', '2 h 5 min', '1 d 4 h')
    """
    if seconds < _FEW:
        return f"{seconds:.1f} s"
    units = list(_UNITS)
    while round(seconds) < units[0][1]:
        units.pop(0)
    # Rounded to the smaller of the two units first, so that no part of 60 is left.
    smaller = units[1][1] if len(units) > 1 else 1
    left = round(seconds / smaller) * smaller
    parts = []
    for name, size in units[:2]:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def size(count: int) -> str:
    """A number of bytes in decimal units.

    >>> size(999), size(8_300_000), size(99_285_504)
    ('999 bytes', '8.3 MB', '99 MB')
    """
    if count < _K:
        return f"{count} bytes"
    place, value = 0, count / _K
    while round(value) >= _K and place < len(_SIZES) - 1:
        place, value = place + 1, value / _K
    return f"{value:.{1 if value < _FEW else 0}f} {_SIZES[place]}"


def parse_number(text: str) -> float:
    """The finite number that a text spells in ASCII digits. Raises ValueError for any other text.

    >>> parse_number("0.5"), parse_number("-1e-3")
    (0.5, -0.001)
    """
    found = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    if not math.isfinite(found):
        raise ValueError(f"'{shortened(text)}' is not a finite number")
    return found


def parse_whole_number(text: str) -> int:
    """The integer that a text spells in ASCII digits.

    Raises ValueError for any other text, and for a number above `LARGEST` in size.

    >>> parse_whole_number("12"), parse_whole_number("-3")
    (12, -3)
    """
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"'{shortened(text)}' is not a whole number")
    # int() refuses thousands of digits.
    if len(text.strip().lstrip("+-0")) > len(str(LARGEST)) or abs(int(text)) > LARGEST:
        raise ValueError(f"{text.strip():.30} is too large; it must be at most {LARGEST}")
    return int(text)


def is_decimal(text: str) -> bool:
    """Whether a text is a number from 0 in ASCII digits, with at most one point.

    >>> [is_decimal(text) for text in ("12", "0.5", "1e3", "-1", "\u00b2", "9" * 400, ".")]
    [True, True, False, False, False, False, False]
    """
    is_short = len(text) <= _MOST_CHARACTERS
    return is_short and text.isascii() and text.replace(".", "", 1).isdigit()


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "task"), counted(9, "task"), counted(2, "copy", "copies")
    ('1 task', '9 tasks', '2 copies')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
