"""`--without` leaves tasks out of the metrics over all tasks, as if they had not been learned."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.eval_rows import NAMES, OWN, merged_rows, own_rows, read_back

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.report.build import build
from vlcpctl.report.document import Document
from vlcpctl.report.identity import identity
from vlcpctl.report.request import ReportRequest
from vlcpctl.report.scores.summary import summarise

# After `forget` has removed the test pairs of the first task, nothing can be evaluated on it.
EMPTIED = (OWN[0], (None, OWN[1][1]), (None, *OWN[2][1:]))


def report(path: Path, without: tuple[str, ...], *, steps: int = 3, **fields: object) -> Document:
    rows = read_back(path / "rows", own_rows(EMPTIED[:steps]))
    return build(rows, ReportRequest(without=without, **fields))  # type: ignore[arg-type]


def test_a_task_does_not_count_and_is_not_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no row at"):
        report(tmp_path, ())
    document = report(tmp_path, ("*smileys",))
    (run,) = document.tracks[0].runs
    means = {name: summarise(run, "rm", name) for name in ("bwt_gem", "own_final", "own_learned")}
    # Of 40 and 30, as they were learned, and 42 and 30 at the end.
    assert {name: found and found.values for name, found in means.items()} == {
        "bwt_gem": (2.0,),
        "own_final": (36.0,),
        "own_learned": (35.0,),
    }
    assert f"metrics over all tasks leave out {NAMES[0]} (--without)" in document.notes


def test_a_run_with_one_task_that_counts_has_nothing_to_forget(tmp_path: Path) -> None:
    gates = {"fail_if": ("bwt_gem:lt:-1",), "undefined": "pass"}
    (verdict,) = report(tmp_path, ("*smileys",), steps=2, **gates).verdicts
    assert (verdict.value, verdict.is_early, verdict.passes) == (None, True, True)


def test_merged_galleries_stay_what_they_are(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "rows", own_rows() + merged_rows())
    values = []
    for without in ((), ("*smileys",)):
        (run,) = build(rows, ReportRequest(without=without)).tracks[0].runs
        found = summarise(run, "rm", "bwt_ctp")
        values.append(found and found.values)
    assert values[0] == values[1] is not None


def test_patterns_of_no_task_and_of_the_last_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--without week\* matches no task \(found: 00-smileys"):
        report(tmp_path, ("week*",))
    with pytest.raises(BadInput, match="names 02-animals, the last task that run 'ctp' has"):
        report(tmp_path, ("*animals",))


def test_it_is_part_of_the_identity_of_a_report_only_if_it_is_given(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "rows", own_rows())
    assert "without" not in identity(rows, ReportRequest())
    assert identity(rows, ReportRequest(without=("a",)))["without"] == ["a"]
