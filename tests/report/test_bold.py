"""Which numbers are bold: those that are better by more than the spread over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.eval_rows import OWN, own_rows, read_back

from vlcpctl.report.report import ReportRequest, build
from vlcpctl.report.scores import Spread
from vlcpctl.report.table import Column, RowGroup, Table, is_ahead, number_cell, with_best_marked

COLUMN = (Column("rm", higher_is_better=True),)
FINAL = "Last model, mean over the tasks' own galleries"
Values = tuple[float, ...]


def bold(*rows: Values, seeds: bool = True, higher_is_better: bool = True) -> list[bool]:
    """Whether the cell of each row is bold, given its value for seeds 0, 1, ..."""
    columns = (Column("rm", higher_is_better=higher_is_better),)
    group = RowGroup("", tuple((number_cell(Spread(values)),) for values in rows))
    numbers = [tuple(range(len(values))) for values in rows] if seeds else []
    return [row[0].is_best for row in with_best_marked(columns, group, numbers).rows]


def test_nothing_is_bold_below_three_seeds() -> None:
    assert bold((50.0,), (90.0,), (49.0,)) == [False] * 3
    assert bold((50.0, 51.0), (90.0, 91.5)) == [False] * 2
    assert bold((50.0, 51.0, 52.0), (90.0, 91.5, 92.0)) == [False, True]
    # A row of one seed: what is not known to be better than it is not known to be best.
    assert bold((50.0, 51.0, 52.0), (90.0, 91.5, 92.0), (10.0,)) == [False] * 3


def test_equal_numbers_share_it() -> None:
    equal, lower = (50.0, 51.0, 52.0), (10.0, 11.5, 12.0)
    assert bold(equal, equal, lower) == [True, True, False]
    assert bold((50.001, 51.0, 52.0), equal, lower) == [True, True, False]
    assert bold(equal, equal) == [False, False]


def test_a_difference_within_the_spread_is_not_bold() -> None:
    # Differences of mean 2, t by hand: 3.46 and 4.90, where the quantile of two degrees is 4.30.
    assert bold((51.0, 42.0, 33.0), (50.0, 40.0, 30.0)) == [False, False]
    assert bold((51.3, 42.0, 32.7), (50.0, 40.0, 30.0)) == [True, False]


@pytest.mark.parametrize("are_paired", [True, False])
def test_the_test_is_that_of_scipy(are_paired: bool) -> None:
    """Two-sided at 5 %: Student's t of pairs, Welch's t of others."""
    from scipy.stats import ttest_ind, ttest_rel  # takes seconds

    draw = np.random.default_rng(0)
    found = []
    for _ in range(200):
        one, other = draw.normal(1.5, 1.0, 4), draw.normal(0.0, 1.0, 4)
        test = ttest_rel(one, other) if are_paired else ttest_ind(one, other, equal_var=False)
        found.append(is_ahead(Spread(tuple(one)), Spread(tuple(other)), are_paired=are_paired))
        assert found[-1] == (test.pvalue < 0.05)
    assert {True, False} == set(found)


def final(path: Path, rows: list[dict[str, Any]]) -> Table:
    document = build(read_back(path / "r", rows), ReportRequest())
    (found,) = [one for _, tables in document.sections() for one in tables if one.title == FINAL]
    return found


@pytest.mark.parametrize(("shift", "is_bold"), [(4.0, True), (0.0, False)])
def test_a_table_pairs_the_seeds_of_its_runs(tmp_path: Path, shift: float, is_bold: bool) -> None:
    rows = []
    for seed, more in enumerate((6.0, 5.0, shift)):
        matrix = tuple(tuple(value + 9 * seed for value in line) for line in OWN)
        better = tuple(tuple(value + more for value in line) for line in matrix)
        rows += own_rows(matrix, seed=seed) + own_rows(better, run="b", seed=seed)
    table = final(tmp_path, rows)
    ((_, *best),) = [row for row in table.groups[0].rows if row[0].text == "b"]
    assert best[1].is_best is is_bold  # rm, after the method
    assert "mean and sample standard deviation, 3 seeds" in table.notes
    has_note = any(note.startswith("bold: better than the rest of its") for note in table.notes)
    assert has_note is any(cell.is_best for row in table.groups[0].rows for cell in row)


def test_the_best_must_be_ahead_of_every_other() -> None:
    """The third has a lower mean than the second, and a spread that reaches the first."""
    first, second, third = (50.0, 50.0, 50.0), (48.0, 48.0, 48.0), (30.0, 64.0, 40.0)
    assert bold(first, second) == [True, False]
    assert bold(first, second, third) == [False] * 3
