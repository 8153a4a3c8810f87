"""Averages that do not agree with the printed cells are found, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.eval_rows import own_rows
from support.published import column, fill, line

from vlcpctl.report.published.averages import mean_of_values
from vlcpctl.report.scores.summary import Spread


@pytest.mark.parametrize(
    ("printed", "is_wrong"),
    [
        ("[1.0, 2.0, 1.5]", False),
        ("[1.0, 2.1, 1.6]", False),  # 1.55, rounded
        ("[1.0, 2.1, 1.5]", False),  # 0.95 to 1.05 and 2.05 to 2.15 have means from 1.5 to 1.6
        ("[1.0, 2.0, 1.6]", False),  # up to 1.55, which may be printed as 1.6
        ("[1.0, 2.1, 1.7]", True),
        ("[1.0, 2.1, 1.4]", True),
        ('[1.0, "", 9.0]', False),
        ('[1.0, 2.0, ""]', False),
        ('[1.0, "yes", 9.0]', False),
    ],
)
def test_a_printed_mean_is_checked_within_its_rounding(
    tmp_path: Path, printed: str, is_wrong: bool
) -> None:
    parts = [
        "decimals = 1",
        *(column(name, "rm@data=00-*") for name in ("a", "b")),
        column("mean", "", mean_of='["a", "b"]'),
        line("CTP", "", printed, group='"Memory-free"'),
    ]
    found = fill(tmp_path, parts, own_rows()).misprints
    assert bool(found) is is_wrong
    for one in found:
        assert one.sentence == (
            f"misprint in the paper: Memory-free: CTP, mean: {one.printed} is printed, but the "
            "mean of a, b is 1.6"
        )


def test_the_rounding_of_parts_is_their_own(tmp_path: Path) -> None:
    parts = [
        *(column(name, "", decimals="0") for name in ("a", "b")),
        column("mean", "", mean_of='["a", "b"]', decimals="1"),
        line("CTP", "", "[1.0, 2.0, 2.0]"),  # of 1.49 and 2.49
    ]
    assert fill(tmp_path, parts, own_rows()).misprints == ()


def test_a_mean_of_rows_is_of_those_of_its_group(tmp_path: Path) -> None:
    parts = [
        column("a", ""),
        line("one", "", "[1.0]", group='"first"'),
        line("one", "", "[9.0]", group='"second"'),
        line("mean", "", "[1.0]", group='"first"', mean_of='["one"]'),
    ]
    assert fill(tmp_path, parts, own_rows()).misprints == ()


def test_means_of_rows_are_checked(tmp_path: Path) -> None:
    parts = [
        column("a", ""),
        line("one", "", "[1.0]"),
        line("two", "", "[2.0]"),
        line("mean", "", "[1.6]", mean_of='["one", "two"]'),
    ]
    (found,) = fill(tmp_path, parts, own_rows()).misprints
    assert (found.row, found.column, found.printed, found.mean) == ("mean", "a", 1.6, 1.5)


def test_a_mean_needs_every_part() -> None:
    assert mean_of_values([Spread((1.0,)), None]) is None
    assert mean_of_values([Spread((1.0,)), "yes"]) is None
    assert mean_of_values([]) is None
    assert mean_of_values([Spread((1.0, 3.0)), Spread((4.0,))]) == Spread((3.0,))
