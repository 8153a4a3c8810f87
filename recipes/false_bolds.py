"""How often a table of runs that do not differ has a bold number (docs/guides/compare_methods.md).

    python recipes/false_bolds.py --tables 20000    prints Markdown; about a minute

The scores of all runs are drawn from one normal distribution, so every bold number is a false one.
The rule is that of `forgetting-report`; beside it stands the rule of 0.2.0, more than two standard
errors of the difference, which is not a test at so few seeds.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable

import numpy as np

from vlcpctl.report.scores import Spread
from vlcpctl.report.table import Column, RowGroup, number_cell, with_best_marked

METHODS = (2, 3, 5, 9)
SEEDS = (2, 3, 5)
COLUMNS = (Column("rm", higher_is_better=True),)

Scores = list[tuple[float, ...]]


def has_bold(scores: Scores) -> bool:
    """Whether the report sets a number in bold, given the scores of each run over its seeds."""
    rows = tuple((number_cell(Spread(values)),) for values in scores)
    seeds = [tuple(range(len(values))) for values in scores]
    marked = with_best_marked(COLUMNS, RowGroup("", rows), seeds)
    return any(cell.is_best for (cell,) in marked.rows)


def had_bold(scores: Scores) -> bool:
    """Whether the best is ahead of every other run by more than two standard errors.

    >>> had_bold([(52.0, 42.0), (50.0, 40.1)]), had_bold([(52.0, 42.0), (50.0, 45.0)])
    (True, False)
    """
    best, *others = sorted(scores, key=statistics.fmean, reverse=True)
    return all(_errors(best, other) > 2 for other in others)


def _errors(best: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The mean of the differences in standard errors."""
    differences = [one - another for one, another in zip(best, other, strict=True)]
    return statistics.fmean(differences) / (
        statistics.stdev(differences) / math.sqrt(len(differences))
    )


def share(rule: Callable[[Scores], bool], methods: int, seeds: int, *, tables: int) -> float:
    """The share of tables of so many equal runs in which the rule sets a number in bold."""
    draw = np.random.default_rng(seeds * 100 + methods)
    found = 0
    for _ in range(tables):
        found += rule([tuple(row) for row in draw.normal(50.0, 10.0, (methods, seeds)).tolist()])
    return found / tables


def main(tables: int) -> None:
    """Print a row for each number of seeds and rule."""
    print(f"| seeds | rule | {' | '.join(f'{methods} methods' for methods in METHODS)} |")
    print("|---" * (len(METHODS) + 2) + "|")
    rules = {"two standard errors": had_bold, "Student's t, 5 %": has_bold}
    for seeds in SEEDS:
        for name, rule in rules.items():
            shares = [share(rule, methods, seeds, tables=tables) for methods in METHODS]
            print(f"| {seeds} | {name} | {' | '.join(f'{100 * one:.1f} %' for one in shares)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=20000)
    main(parser.parse_args().tables)
