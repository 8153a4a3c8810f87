"""The list of published tables: the commands that make their rows, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from vlcpctl.report.papers import Paper, load_paper, shipped_names


def catalogue() -> str:
    """A table in Markdown for each paper: the tables, their commands and the differences."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    tables = [load_paper(name) for name in shipped_names()]
    for paper in dict.fromkeys(table.about["paper"] for table in tables):
        members = [table for table in tables if table.about["paper"] == paper]
        yield from ("", f"## {paper}", "")
        citation = members[0].about.get("citation")
        yield from ([f"{_text(citation)}.", ""] if citation else [])
        yield "| table | shows | command | with Emoji-9 | what differs from the paper |"
        yield "|---|---|---|---|---|"
        for table in members:
            about = table.about
            shows = _text(f"{about['number']}: {about['caption']}. Paper: {about['data']}")
            codes = (table.name, about.get("command"), about.get("emoji9"))
            name, command, emoji9 = (f"`{one}`".replace("|", "\\|") if one else "" for one in codes)
            yield f"| {' | '.join((name, shows, command, emoji9, _differences(table)))} |"


def _differences(table: Paper) -> str:
    """The notes, but of misprints, and the rows that no run has and no note is about."""
    notes = [one for one in table.notes if not one.startswith("misprint")]
    starts = {one.partition(":")[0] for one in notes}
    absent = [row.name for row in table.rows if not row.run and row.name not in starts]
    notes += [f"Not among the runs: {', '.join(absent)}."] if absent else []
    return "<br>".join(map(_text, notes))


def _text(text: str) -> str:
    """The text on one line of a table; a line break of Markdown is the only markup."""
    line = " ".join(text.split())
    for char in "\\|*_<>[]":
        line = line.replace(char, f"\\{char}")
    return line
