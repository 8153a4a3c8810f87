"""Markdown of generated text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# An option or an environment variable in a sentence; without code marks, Markdown would change it.
_CODE = re.compile(r"(?<![\w`\[-])(--[a-z][\w-]*(?:=[\w.:=|]+)?|VLCPCTL_\w+)")
_SPECIAL = re.compile(r"(\*|<(?=[A-Za-z/!])|(?<!\w)_|_(?!\w))")


def prose(text: str) -> str:
    """Plain text as Markdown that shows the same characters, with options as code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(
        f"`{part}`" if number % 2 else _SPECIAL.sub(r"\\\1", part)
        for number, part in enumerate(parts)
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown cells."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def entry(term: str, *lines: str) -> str:
    """An entry of a list: a term in code, and sentences on the lines below it."""
    return "\\\n".join([f"- `{term}`", *(f"  {line}" for line in lines if line)])


def block(text: str, language: str = "text") -> str:
    """A fenced block."""
    return f"```{language}\n{text.rstrip()}\n```"
