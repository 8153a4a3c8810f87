"""The catalogue of published tables: the commands that make their rows, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from vlcpctl.report.published.definition import PublishedTable, load_table, shipped_names


def catalogue() -> Iterator[str]:
    """The lines of a table in Markdown for each paper: table, commands and differences."""
    tables = [load_table(name) for name in shipped_names()]
    for paper in dict.fromkeys(table.paper for table in tables):
        members = [table for table in tables if table.paper == paper]
        yield from ("", f"## {paper}", "")
        citation = members[0].citation
        yield from ([f"{_text(citation)}.", ""] if citation else [])
        yield "| table | shows | command | with Emoji-9 | what differs from the paper |"
        yield "|---|---|---|---|---|"
        yield from map(_line, members)


def _line(table: PublishedTable) -> str:
    shows = f"{table.number}: {table.caption}. Paper: {table.data}"
    cells = (f"`{table.name}`", _text(shows), _code(table.command), _code(table.emoji9))
    return f"| {' | '.join((*cells, _differences(table)))} |"


def _differences(table: PublishedTable) -> str:
    """The notes, then those of columns and rows, and the rows that no run has."""
    notes = [*table.notes]
    notes += [f"{one.title}: {one.note}" for one in table.columns if one.note]
    notes += [f"{one.name}: {one.note}" for one in table.rows if one.note]
    absent = [row.name for row in table.rows if not (row.run or row.note or row.mean_of)]
    notes += [f"Not among the runs: {', '.join(absent)}."] if absent else []
    return "<br>".join(map(_text, notes))


def _text(text: str) -> str:
    """The text on one line of a table; a line break of Markdown is the only markup."""
    line = " ".join(text.split())
    for char in "\\|*_<>[]":
        line = line.replace(char, f"\\{char}")
    return line


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""
