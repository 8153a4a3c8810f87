"""The list of published tables in docs/papers/tables.md has all of the package."""

from __future__ import annotations

import re

from support.doc_pages import generator

from vlcpctl.report.papers import shipped_names


def test_every_table_has_a_line_with_its_commands() -> None:
    text = generator("published_tables").catalogue()
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == len(shipped_names())
    for line in lines:
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        assert len(cells) == 5
        assert cells[2].strip().startswith("`bash recipes/")
        assert "--emoji9" in cells[3]
        assert "--data" not in cells[3]
