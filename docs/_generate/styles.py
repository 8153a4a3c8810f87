"""The table of Emoji by style, and what its cells say of a method, from docs/results/cells."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parents[2]
CELLS = ROOT / "docs" / "results" / "cells" / "styles.tsv"
# The images of each gallery, which recipes/styles_table.py prints: chance depends on them.
SIZES = {"rm": 1339, "names": 220, "seen": 1339, "far": 1327}

sys.path.append(str(ROOT / "recipes"))
import styles_table  # noqa: E402


def table() -> str:
    """The table that the recipe prints."""
    return "\n".join(styles_table.table(styles_table.read_cells(CELLS), SIZES))


def result(name: str) -> str:
    """A sentence with the score of a method beside its bounds with the same seeds; "" without."""
    cells = styles_table.read_cells(CELLS)
    seeds = [seed for row, seed in cells if row == name]
    if not seeds:
        return ""
    scores = {
        row: [cells[row, seed]["rm"] for seed in seeds]
        for row in dict.fromkeys((name, "seqf", "joint"))
    }
    said = [f"`{row}` has {mean(found):.2f}" for row, found in scores.items()]
    words = f"{', '.join(said[:-1])} and {said[-1]}" if len(said) > 1 else said[0]
    which = "one seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"
    return (
        "On pictures in a style that it has not seen "
        f"([Emoji by style](../results/styles.md), {which}), {words}."
    )
