"""The list of published tables: the commands that make their rows, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from vlcpctl.report.published.definition import PublishedTable, load_table, shipped_names


def catalogue() -> str:
    """A table in Markdown for each paper: the tables, their commands and the differences."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    tables = [load_table(name) for name in shipped_names()]
    for paper in dict.fromkeys(table.paper for table in tables):
        members = [table for table in tables if table.paper == paper]
        yield from ("", f"## {paper}", "")
        citation = members[0].citation
        yield from ([f"{_text(citation)}.", ""] if citation else [])
        yield "| table | shows | command | with Emoji-9 | what differs from the paper |"
        yield "|---|---|---|---|---|"
        for table in members:
            shows = _text(f"{table.number}: {table.caption}. Paper: {table.data}")
            codes = (table.name, table.command, table.emoji9)
            name, command, emoji9 = (f"`{one}`".replace("|", "\\|") if one else "" for one in codes)
            yield f"| {' | '.join((name, shows, command, emoji9, _differences(table)))} |"


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
