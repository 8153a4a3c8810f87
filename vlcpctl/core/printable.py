"""Text of unknown origin, such as names in files of others, made safe for a terminal."""

from __future__ import annotations

import re

# Control characters (escape codes among them), marks that reverse the direction of text, line and
# paragraph separators, and halves of surrogate pairs (bytes of a path that are not UTF-8).
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_JSON_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE_BUT_NEWLINE = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_MOST_SHOWN = 200  # characters
# user:password@ of a URL, also after Path has turned // into /; what follows a port may have @. A
# secret among the parameters of a URL; one among the options of a store, as Python shows them.
_SECRET = re.compile(
    r"""(:/{1,2})[^\s/:@'"]*:(?!\d+(?:/|$))[^\s'"]*(?=@)"""
    r"""|(?<=[?&])([\w-]*(?:secret|password|token|signature|sig|key)[\w-]*=)[^\s&'"]+"""
    r"""|(['"](?:secret|password|account_key|sas_token)['"]: ?['"])[^'"]+""",
    re.IGNORECASE,
)


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
    r"""The text with unsafe characters as backslash escapes; newlines stay.

    >>> print(printable_lines("a\nb\x1b"))
    a
    b\x1b
    """
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


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if "\udc80" <= char <= "\udcff":  # how Python carries a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
