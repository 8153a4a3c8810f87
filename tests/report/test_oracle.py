"""How far final scores are from those of the oracle, such as joint training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.collected import fact, facts_of
from support.eval_rows import merged_rows, own_rows, read_back

from vlcpctl.core.errors import UsageError
from vlcpctl.report.formats import table_markdown
from vlcpctl.report.report import Document, ReportRequest, build

JOINT = {"run": "all", "method": "joint"}


def of_seeds(
    shifts: tuple[float, ...], seeds: tuple[int, ...], **fields: Any
) -> list[dict[str, Any]]:
    return [
        one
        for shift, seed in zip(shifts, seeds, strict=True)
        for one in own_rows(
            ((60.0,), (50.0, 40.0), (40.0 + shift, 42.0, 30.0)), seed=seed, **fields
        )
    ]


def report(path: Path, rows: list[dict[str, Any]], **options: Any) -> Document:
    return build(read_back(path / "r", rows), ReportRequest(**options))


def test_seeds_that_both_have_are_paired(tmp_path: Path) -> None:
    # The last models differ in one of three tasks: by 3, 6 and 9 points, seed by seed.
    rows = of_seeds((0, 3, 6), (0, 1, 2)) + of_seeds((3, 9, 15), (0, 1, 2), **JOINT)
    found = fact(report(tmp_path, rows), "to_oracle", gallery="own", run="ctp")
    assert (found["value"], found["sd"], found["values"]) == (-2, 1, [-1, -2, -3])
    assert found["low"] == pytest.approx(-2 - 4.302653 / 3**0.5, abs=1e-5)  # Student's t, 2 d. f.
    assert found["high"] == pytest.approx(-2 + 4.302653 / 3**0.5, abs=1e-5)


def test_other_seeds_are_compared_by_their_means(tmp_path: Path) -> None:
    rows = of_seeds((0, 6), (0, 1)) + of_seeds((3, 9), (2, 3), **JOINT)
    found = fact(report(tmp_path, rows), "to_oracle", gallery="own", run="ctp")
    assert (found["value"], found["n"], found["sd"]) == (-1, 1, None)
    # Welch: both have a standard error of 1, so 2 degrees of freedom.
    assert found["low"] == pytest.approx(-1 - 4.302653 * 2**0.5, abs=1e-4)


def test_merged_galleries_are_compared_with_the_same_ones(tmp_path: Path) -> None:
    rows = (
        own_rows()
        + merged_rows()
        + own_rows(**JOINT)
        + merged_rows(((1.0,), (2.0, 3.0), (4.0, 5.0, 45.0)), **JOINT)
    )
    document = report(tmp_path, rows)
    assert fact(document, "to_oracle", gallery="merged", run="ctp")["value"] == -10
    assert facts_of(document, "to_oracle", gallery="merged", run="all") == []


def test_the_table_of_final_scores_has_the_distance(tmp_path: Path) -> None:
    rows = of_seeds((0, 3, 6), (0, 1, 2)) + of_seeds((3, 9, 15), (0, 1, 2), **JOINT)
    ((_, tables),) = report(tmp_path, rows).sections()
    text = table_markdown(tables[0])
    assert "-4.48 to 0.48" in text
    assert "to all (in rm): final score minus that of the oracle" in text


def test_a_run_that_is_named_is_the_oracle(tmp_path: Path) -> None:
    rows = own_rows() + own_rows(run="best", method="er")
    assert facts_of(report(tmp_path, rows), "to_oracle") == []
    found = facts_of(report(tmp_path, rows, oracle="best"), "to_oracle", gallery="own")
    assert [(one["run"], one["value"]) for one in found] == [("ctp", 0)]
    with pytest.raises(UsageError, match="--oracle: unknown run 'bset'; did you mean 'best'"):
        report(tmp_path, rows, oracle="bset")
