"""Text of messages: what others named, made safe for a terminal; paths, numbers, times and sizes.

Python's `float` and `int` take more than a person means: nan, inf, 1_0, digits of any script. Every
number of the command line is parsed here.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

# The cache of object stores; in the environment, so that every process of a command has it.
CACHE_SETTING = "_VLCPCTL_STORE_CACHE"
LARGEST = 2**63 - 1  # of whole numbers: larger ones fit neither Arrow's columns nor torch's seeds

Shown = Callable[[str | Path], str]  # the text of a path in messages

# Control characters (escape codes among them), marks that reverse the direction of text, line and
# paragraph separators, and halves of surrogate pairs (bytes of a path that are not UTF-8).
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_UNSAFE_BUT_NEWLINE = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_JSON_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# user:password@ of a URL, also after Path has turned // into /; what follows a port may have @. A
# secret among the parameters of a URL; one among the options of a store, as Python shows them.
_SECRET = re.compile(
    r"""(:/{1,2})[^\s/:@'"]*:(?!\d+(?:/|$))[^\s'"]*(?=@)"""
    r"""|(?<=[?&])([\w-]*(?:secret|password|token|signature|sig|key)[\w-]*=)[^\s&'"]+"""
    r"""|(['"](?:secret|password|account_key|sas_token)['"]: ?['"])[^'"]+""",
    re.IGNORECASE,
)
# What Markdown (and GitHub, which also links bare addresses and sets $x$ as mathematics) would not
# show as it is.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#&~$]|(?<=\w):(?=//)|(?<=\bwww)\.)")
_MOST_SHOWN = 200  # characters
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_SIZES = ("kB", "MB", "GB", "TB")
_FEW = 10  # seconds, or units of a size, below which a tenth counts
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST_CHARACTERS = 30  # of a number; one of hundreds of digits would be infinite as a float


def without_secrets(text: object) -> str:
    """The text with *** for the passwords and secrets of URLs.

    >>> without_secrets("s3://KEY:se/cret@data/x, https://host:80/a@b?sig=x&n=1, {'secret': 'y'}")
    "s3://***@data/x, https://host:80/a@b?sig=***&n=1, {'secret': '***'}"
    """
    return _SECRET.sub(lambda found: f"{found[1] or found[2] or found[3]}***", str(text))


def printable(text: object) -> str:
    r"""The text on one line, with unsafe characters as backslash escapes.

    >>> print(printable("a\x1b[31mb\nc\udcff"))
    a\x1b[31mb\nc\xff
    """
    return _UNSAFE.sub(_escaped, without_secrets(text))


def printable_lines(text: object) -> str:
    r"""The text with unsafe characters as backslash escapes; newlines stay."""
    return _UNSAFE_BUT_NEWLINE.sub(_escaped, without_secrets(text))


def printable_json(text: object) -> str:
    r"""The line with unsafe characters as JSON escapes: a line of JSON stays the same JSON.

    >>> print(printable_json('{"a": "\x7f\x9b\u2028"}'))
    {"a": "\u007f\u009b\u2028"}
    """
    return _UNSAFE.sub(
        lambda found: _JSON_SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", without_secrets(text)
    )


def utf8_json(text: str) -> str:
    r"""JSON text that can be written: bytes of a path that are not UTF-8 become backslash escapes.

    Python carries such bytes as halves of surrogate pairs, which UTF-8 cannot encode. The backslash
    is escaped once more, for JSON.

    >>> print(utf8_json('"a\udcff"'))
    "a\\xff"
    """
    return _NOT_UTF8.sub(lambda found: "\\" + _escaped(found), text)


def shortened(text: object) -> str:
    """The text on one line as `printable` shows it, cut in the middle if it is long.

    >>> shortened("x" * 10**6)[-24:]
    'xxx (1000000 characters)'
    """
    whole = str(text)
    if len(whole) > _MOST_SHOWN:
        half = _MOST_SHOWN // 2
        whole = f"{whole[:half]}...{whole[-half:]} ({len(whole)} characters)"
    return printable(whole)


@lru_cache(maxsize=10_000)  # cells repeat
def as_markdown(text: str) -> str:
    r"""The text on one line, escaped so that Markdown shows it literally and nothing is a link.

    >>> as_markdown("a|b <i>_c_")
    'a\\|b \\<i\\>\\_c\\_'
    """
    return _MARKDOWN.sub(r"\\\1", " ".join(printable(text).split()))


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if "\udc80" <= char <= "\udcff":  # how Python carries a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def as_argument(path: str | Path) -> str:
    """A path that no program takes for an option: `./-x` for `-x`."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def as_word(path: str | Path) -> str:
    """A path as a word of a command line that a user can paste into a shell.

    >>> as_word(Path("-x y"))
    "'./-x y'"
    """
    return shlex.quote(as_argument(path))


def as_given(path: str | Path, given: Sequence[Path]) -> str:
    """A resolved path as a user who gave the paths `given` would write it.

    A path below one of them starts with it. Another one is relative to the current directory if
    all of them are relative, and stays as it is otherwise.

    >>> as_given(Path("runs/01/x").absolute(), [Path("runs")])
    'runs/01/x'
    >>> as_given(Path("stream/00").absolute(), [Path("runs")])
    'stream/00'
    """
    for one in given:
        real = Path(os.path.realpath(one))
        if Path(path).is_relative_to(real):
            return str(one / Path(path).relative_to(real))
    if any(one.is_absolute() for one in given) or not Path(path).is_absolute():
        return str(path)
    return os.path.relpath(path, os.path.realpath("."))


def shown(text: str) -> str:
    """A text in which the paths of stored files are their URLs again."""
    root = os.environ.get(CACHE_SETTING)
    if root is None or "/tree/" not in text:
        return text
    before, *parts = text.split(f"{root}/tree/")
    return before + "".join(part.replace("/", "://", 1) for part in parts)


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "task"), counted(9, "task"), counted(2, "copy", "copies")
    ('1 task', '9 tasks', '2 copies')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def wrapped(line: str, below: int) -> list[str]:
    """The line in at most 80 columns; what does not fit is on lines `below` columns in.

    >>> wrapped("  week 1: " + "learned 1.0 points, " * 4, 4)[1]
    '    1.0 points,'
    """
    found = textwrap.TextWrapper(80, subsequent_indent=" " * below)
    found.break_long_words = found.break_on_hyphens = False
    return found.wrap(line) if len(line) > 80 else [line]


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
    for name, unit in units[:2]:
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def size(count: int) -> str:
    """A number of bytes in decimal units.

    >>> size(999), size(8_300_000), size(99_285_504)
    ('999 bytes', '8.3 MB', '99 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    place, value = 0, count / 1000
    while round(value) >= 1000 and place < len(_SIZES) - 1:
        place, value = place + 1, value / 1000
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
