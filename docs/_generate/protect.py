"""The table of what protects the start, from docs/results/cells."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CELLS = ROOT / "docs" / "results" / "cells" / "protect.tsv"

sys.path.append(str(ROOT / "recipes"))
import protect_table  # noqa: E402


def table() -> str:
    """The table that the recipe prints."""
    return "\n".join(protect_table.table(protect_table.read_cells(CELLS)))
