"""The list of published tables in docs/papers/tables.md is that of the package."""

from __future__ import annotations

import re
from pathlib import Path

from vlcpctl.report.published.catalogue import catalogue
from vlcpctl.report.published.definition import shipped_names

GUIDE = Path(__file__).parents[3] / "docs" / "papers" / "tables.md"


def test_every_table_has_a_line_with_its_commands() -> None:
    lines = [line for line in catalogue() if line.startswith("| `")]
    assert len(lines) == len(shipped_names())
    for line in lines:
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        assert len(cells) == 5
        assert cells[2].strip().startswith("`bash recipes/")
        assert "--emoji9" in cells[3]
        assert "--data" not in cells[3]


def test_the_guide_is_up_to_date() -> None:
    """As `cog --check docs/papers/tables.md` finds."""
    made = GUIDE.read_text(encoding="utf-8").split("]]] -->\n", 1)[1].split("<!-- [[[end]]] -->")[0]
    assert made.splitlines() == list(catalogue())
