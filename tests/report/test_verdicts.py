"""--fail-if: which conditions hold, which do not, and which cannot be evaluated."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.eval_rows import MERGED, OWN, merged_rows, own_rows, read_back

from vlcpctl.core.errors import BadInput, GateFailed
from vlcpctl.report.gates import Verdict, enforce, in_words, verdicts_table
from vlcpctl.report.report import Document, ReportRequest, as_line, build

JOINT = (*[()] * 2, (70.0, 70.0, 70.0))


def _judged(path: Path, *fail_if: str, runs: tuple[str, ...] = ()) -> Document:
    rows = own_rows() + merged_rows() + own_rows(JOINT, run="joint")
    return build(read_back(path / "r", rows), ReportRequest(fail_if=fail_if, runs=runs))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("bwt_gem:lt:-8", True),
        ("bwt_gem:lt:-9", False),
        ("bwt_gem:le:-9", True),
        ("bwt_gem:ge:-9", True),
        ("bwt_gem.t2i_r1:lt:-5", False),
        ("bwt_ctp:gt:9", True),
        ("rm:lt:36", True),
        ("t2i_r1:lt:17.4", False),
    ],
)
def test_a_condition_is_compared_with_the_run(tmp_path: Path, condition: str, holds: bool) -> None:
    (verdict,) = _judged(tmp_path, condition, runs=("ctp",)).verdicts
    assert verdict.holds is holds


@pytest.mark.parametrize(
    ("resolved", "accepted", "words"),
    [
        ((True, True), True, "accepted"),
        ((True, None), True, "accepted"),  # one has no interval
        ((True, False), True, "accepted, not resolved"),
        ((), True, "accepted"),
        ((True, False), False, "rejected"),
    ],
)
def test_the_words_for_a_week_are_of_all_its_losses(
    resolved: tuple[bool | None, ...], accepted: bool, words: str
) -> None:
    names = {"condition": "drop:gt:2", "run": "r", "metric": "drop.rm", "undefined": None}
    verdict = partial(Verdict, **names, value=1.0, holds=False)
    assert in_words([verdict(is_resolved=one) for one in resolved], accepted=accepted) == words


def test_a_bare_key_is_the_merged_score_or_else_the_own_one(tmp_path: Path) -> None:
    verdicts = _judged(tmp_path, "rm:lt:0").verdicts
    assert {verdict.run: verdict.metric for verdict in verdicts} == {
        "ctp": "merged_final.rm",
        "joint": "own_final.rm",
    }


def test_a_condition_that_holds_fails_with_the_number(tmp_path: Path) -> None:
    document = _judged(tmp_path, "bwt_gem:lt:-5", "own_final:gt:0", runs=("ctp",))
    with pytest.raises(GateFailed) as caught:
        enforce(document.verdicts)
    assert "ctp: bwt_gem.rm = -9.0000 < -5" in str(caught.value)
    assert "ctp: own_final.rm = 37.3333 > 0" in str(caught.value)
    assert caught.value.exit_code == 7


def test_an_undefined_metric_cannot_be_judged(tmp_path: Path) -> None:
    document = _judged(tmp_path, "bwt_gem:lt:-50")
    with pytest.raises(BadInput, match=r"joint: bwt_gem.rm is undefined, it was evaluated at its"):
        enforce(document.verdicts)


def test_a_gallery_is_selected(tmp_path: Path) -> None:
    verdicts = _judged(tmp_path, "rm@gallery=*:lt:0", "bwt_ctp@gallery=merged:gt:50").verdicts
    assert [(one.run, one.metric) for one in verdicts] == [
        ("ctp", "own_final.rm"),
        ("ctp", "merged_final.rm"),
        ("joint", "own_final.rm"),
        ("ctp", "bwt_ctp.rm"),
        ("joint", "bwt_ctp.rm"),
    ]
    values = {one.metric: one.value for one in verdicts if one.run == "ctp"}
    assert (values["own_final.rm"], values["merged_final.rm"]) == (pytest.approx(112 / 3), 35.0)


def test_what_matches_nothing_is_an_error_with_undefined_pass(tmp_path: Path) -> None:
    rows = own_rows(OWN[:1])
    for condition in ("bwt_gem@run=none:lt:0", "drop:gt:0", "bwt_ctp:gt:0"):
        request = ReportRequest(fail_if=(condition,), undefined="pass")
        with pytest.raises(BadInput):
            enforce(build(read_back(tmp_path / "r", rows), request).verdicts)


@pytest.mark.parametrize("metric", ["bwt_gem", "bwt_ctp", "fwt_gem"])
def test_forgetting_is_not_defined_after_one_task(tmp_path: Path, metric: str) -> None:
    rows = read_back(tmp_path / "r", own_rows(OWN[:1]) + merged_rows(MERGED[:1]))
    request = ReportRequest(fail_if=(f"{metric}:gt:1000", "own_final:lt:1"))
    early, level = build(rows, request).verdicts
    assert early.outcome == "not defined yet (1 task)"
    assert (level.outcome, early.passes, level.passes) == ("passes", False, True)
    with pytest.raises(BadInput, match=r"--undefined pass"):
        enforce([early, level])
    excused = build(rows, replace(request, undefined="pass")).verdicts
    assert [one.passes for one in excused] == [True, True]
    assert excused[0].outcome == "not defined yet (1 task)"
    enforce(excused)


def test_every_verdict_shows_value_bound_and_outcome(tmp_path: Path) -> None:
    document = _judged(tmp_path, "bwt_gem:lt:-10", "rm:lt:36", "bwt_gem@run=x:lt:0")
    table = verdicts_table(document.verdicts)
    names = [column.name for column in table.columns]
    assert names == ["condition", "run", "metric", "value", "bound", "verdict"]
    (group,) = table.groups
    assert [[cell.text for cell in row][1:] for row in group.rows] == [
        ["ctp", "bwt_gem.rm", "-9.0000", "< -10", "passes"],
        ["joint", "bwt_gem.rm", "-", "< -10", "undefined: it was evaluated at its last step only"],
        ["ctp", "merged_final.rm", "35.0000", "< 36", "fails"],
        ["joint", "own_final.rm", "70.0000", "< 36", "passes"],
        ["all runs", "bwt_gem", "-", "< 0", "undefined: no run matches 'x' (known: ctp, joint)"],
    ]
    assert document.verdicts[0].sentence() == "ctp: bwt_gem.rm = -9.0000, not < -10"


def test_the_summary_has_verdicts_as_json(tmp_path: Path) -> None:
    document = _judged(tmp_path, "bwt_gem:lt:-20", runs=("ctp",))
    (found,) = json.loads(as_line(document, {"rows": ""}))["verdicts"]
    assert found == {
        "condition": "bwt_gem:lt:-20",
        "run": "ctp",
        "metric": "bwt_gem.rm",
        "value": -9.0,
        "holds": False,
        "undefined": None,
        "data": None,
        "track": "retrieval, cross-modal, test split",
        "bound": -20.0,
        "is_early": False,
        "passes": True,
        "outcome": "passes",
    }
