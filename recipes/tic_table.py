"""TiC-CLIP's three numbers of each protocol, from the report of recipes/tic.sh.

    python recipes/tic_table.py REPORT    prints Markdown

E[i, j] is the mean recall in step of time j of the model after step i, averaged over seeds. All
three are plain means of its cells, not the differences that other papers call transfer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.report.report import FACTS, read_facts

METRIC = "rm"
HEADS = ("protocol", "own time", "earlier times", "later times", "last model, all times")


def means(matrix: list[list[float]]) -> tuple[float, float, float, float]:
    """In-domain (the diagonal), backward (below it), forward (above it), and of the last row.

    >>> means([[10.0, 2.0, 1.0], [8.0, 12.0, 3.0], [6.0, 9.0, 14.0]])
    (12.0, 7.67, 2.0, 9.67)
    """
    scores = np.array(matrix)
    rows, columns = np.indices(scores.shape)
    parts = scores[rows == columns], scores[columns < rows], scores[columns > rows], scores[-1]
    in_domain, backward, forward, last = (round(float(part.mean()), 2) for part in parts)
    return in_domain, backward, forward, last


def table(facts: Iterable[dict[str, Any]]) -> list[str]:
    """A line of each protocol, in the order of the facts."""
    runs: dict[str, dict[str, list[float]]] = {}  # by step, the scores in the order of the tasks
    for fact in facts:
        if (fact["metric"], fact["key"], fact["gallery"]) == ("score", METRIC, "own"):
            runs.setdefault(fact["run"], {}).setdefault(fact["step"], []).append(fact["value"])
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for run, steps in runs.items():
        cells = [f"{value:.1f}" for value in means(list(steps.values()))]
        lines.append(f"| `{run}` | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(read_facts((Path(sys.argv[1]) / FACTS).read_text()))))
