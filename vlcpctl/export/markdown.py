"""Tables in the Markdown of a card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
