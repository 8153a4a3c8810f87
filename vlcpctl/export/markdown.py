"""The Markdown of a card: its header, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from vlcpctl.core.markdown import escaped


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    r"""A table with a head and rows of as many cells.

    >>> print(table(("task", "pairs"), [("a|b", 3)]))
    | task | pairs |
    |---|---|
    | a\|b | 3 |
    """
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(escaped(str(cell)) for cell in cells)} |"


def front_matter(fields: Mapping[str, Any]) -> str:
    """The header of a card, which the Hugging Face hub reads.

    >>> print(front_matter({"license": "unknown", "tags": ["clip", "no"]}))
    ---
    license: unknown
    tags:
    - clip
    - 'no'
    ---
    """
    return f"---\n{yaml.safe_dump(dict(fields), sort_keys=False, width=1000)}---"
