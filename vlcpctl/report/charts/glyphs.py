"""Fonts for the text of figures, and what to show for characters that none of them has."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from vlcpctl.core.printable import printable

FONT = "DejaVu Sans"  # comes with matplotlib, so it is on every machine
# Used where they are installed, for characters that FONT lacks. Not those with coloured bitmaps in
# the place of outlines (Noto Color Emoji), which matplotlib cannot draw.
FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Hiragino Sans",
    "Malgun Gothic",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
    "Noto Emoji",
    "Symbola",
    "Segoe UI Symbol",
    "Apple Symbols",
    "Unifont",
)
_MOST_SHOWN = 5  # characters in a message


@cache
def families() -> tuple[str, ...]:
    """FONT and the installed fallbacks, in the order in which a character is looked up."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return (FONT, *(name for name in FALLBACKS if name in installed))


@cache
def _characters() -> frozenset[int]:
    """The code points that any of the families has."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    paths = [findfont(FontProperties(family=[name])) for name in families()]
    return frozenset(code for path in paths for code in get_font(path).get_charmap())


def drawable(text: object) -> str:
    """The text on one line, with characters that no font has as their code points: U+1F980."""
    line = printable(text)
    if all(ord(char) in _characters() for char in line):
        return line
    named = (char if ord(char) in _characters() else f" {_name(char)} " for char in line)
    return " ".join("".join(named).split())


def _name(char: str) -> str:
    return f"U+{ord(char):04X}"


def missing_note(texts: Iterable[str]) -> str | None:
    """A sentence about the characters of these texts that no font has; None if there are none."""
    characters = {char for text in texts for char in printable(text)}
    lacking = sorted(char for char in characters if ord(char) not in _characters())
    if not lacking:
        return None
    more = len(lacking) - _MOST_SHOWN
    names = ", ".join(map(_name, lacking[:_MOST_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return (
        f"--figures: no installed font has {names}; the figures show code points; install a font "
        "such as Noto Sans CJK or Noto Emoji, and repeat with --force"
    )
