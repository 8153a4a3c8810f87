"""Which numbers are bold: those that are better by more than the spread over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import OWN, own_rows, read_back

from vlcpctl.report.build import build
from vlcpctl.report.request import Request
from vlcpctl.report.scores.ahead import is_ahead
from vlcpctl.report.scores.summary import Spread
from vlcpctl.report.tables.table import Column, RowGroup, Table, number_cell, with_best_marked

COLUMN = (Column("rm", higher_is_better=True),)
FINAL = "Last model, mean over the tasks' own galleries"
Values = tuple[float, ...]


def bold(*rows: Values, seeds: bool = True, higher_is_better: bool = True) -> list[bool]:
    """Whether the cell of each row is bold, given its value for seeds 0, 1, ..."""
    columns = (Column("rm", higher_is_better=higher_is_better),)
    group = RowGroup("", tuple((number_cell(Spread(values)),) for values in rows))
    numbers = [tuple(range(len(values))) for values in rows] if seeds else []
    return [row[0].is_best for row in with_best_marked(columns, group, numbers).rows]


def test_with_one_seed_the_highest_number_is_bold() -> None:
    assert bold((50.0,), (50.1,), (49.0,)) == [False, True, False]
    assert bold((50.0,), (50.1,), higher_is_better=False) == [True, False]


def test_equal_numbers_share_it() -> None:
    assert bold((50.001,), (50.0,), (49.0,)) == [True, True, False]
    assert bold((50.0, 51.0), (50.0, 51.0), (10.0, 11.0)) == [True, True, False]


def test_a_difference_within_the_spread_is_not_bold() -> None:
    # paired differences 5 and -4: mean 0.5, standard error 4.5
    assert bold((50.0, 41.0), (45.0, 45.0)) == [False, False]
    # differences 2 and 2.2: mean 2.1, standard error 0.1
    assert bold((50.0, 40.2), (48.0, 38.0)) == [True, False]


def test_seeds_are_paired_only_where_they_are_the_same() -> None:
    assert bold((52.0, 42.0), (50.0, 40.0)) == [True, False]
    assert bold((52.0, 42.0), (50.0, 40.0), seeds=False) == [False, False]


def test_the_best_must_be_ahead_of_every_other() -> None:
    """The third has a lower mean than the second, and a spread that reaches the first."""
    assert bold((50.0, 50.0), (48.0, 48.0), (30.0, 64.0)) == [False, False, False]


def test_one_seed_is_compared_by_the_deviation_of_the_other_run() -> None:
    assert bold((60.0,), (40.0, 42.0, 44.0)) == [True, False]
    assert bold((45.0,), (40.0, 42.0, 44.0)) == [False, False]


def test_the_error_of_unpaired_means_by_hand() -> None:
    # deviations sqrt(2) and sqrt(8), of two values each: errors 1 and 2
    best, other = Spread((50.0, 52.0)), Spread((44.0, 48.0))
    assert is_ahead(best, other, are_paired=False) is (5 > 2 * 5**0.5)
    assert is_ahead(best, Spread((45.0, 49.0)), are_paired=False) is (4 > 2 * 5**0.5)


def final(path: Path, rows: list[dict[str, Any]]) -> Table:
    document = build(read_back(path / "r", rows), Request())
    (found,) = [one for _, tables in document.sections() for one in tables if one.title == FINAL]
    return found


@pytest.mark.parametrize(("shift", "is_bold"), [(4.0, True), (0.0, False)])
def test_a_table_pairs_the_seeds_of_its_runs(tmp_path: Path, shift: float, is_bold: bool) -> None:
    other = tuple(tuple(value + 9 for value in line) for line in OWN)
    rows = own_rows() + own_rows(other, seed=1)
    for seed, (matrix, more) in enumerate(((OWN, 6.0), (other, shift))):
        better = tuple(tuple(value + more for value in line) for line in matrix)
        rows += own_rows(better, run="b", seed=seed)
    table = final(tmp_path, rows)
    ((_, *best),) = [row for row in table.groups[0].rows if row[0].text == "b"]
    assert best[1].is_best is is_bold  # rm, after the method
    assert "mean and sample standard deviation, 2 seeds" in table.notes
    assert any(note.startswith("bold: better than every other of its") for note in table.notes)


def test_a_table_of_one_seed_says_what_bold_is(tmp_path: Path) -> None:
    notes = final(tmp_path, own_rows() + own_rows(run="b")).notes
    assert "bold: the best number of its group; of one seed, so its spread is not known" in notes
    assert not any("bold" in note for note in final(tmp_path, own_rows()).notes)
