"""--fail-if: which conditions are valid, which hold, and which cannot be evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.eval_rows import OWN, merged_rows, own_rows, read_back, row

from vlcpctl.core.errors import BadInput, GateFailed, UsageError
from vlcpctl.report.build import Request, build
from vlcpctl.report.document import Document
from vlcpctl.report.gates.grammar import parse_gate
from vlcpctl.report.gates.verdicts import enforce

JOINT = (*[()] * 2, (70.0, 70.0, 70.0))


def _judged(path: Path, *fail_if: str, runs: tuple[str, ...] = ()) -> Document:
    rows = own_rows() + merged_rows() + own_rows(JOINT, run="joint")
    return build(read_back(path / "r", rows), Request(fail_if=fail_if, runs=runs))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("bwt_gem:lt:-8", True),
        ("bwt_gem:lt:-9", False),
        ("bwt_gem:le:-9", True),
        ("bwt_gem:gt:-9", False),
        ("bwt_gem:ge:-9", True),
        ("bwt_gem.t2i_r1:lt:-4", True),
        ("bwt_gem.t2i_r1:lt:-5", False),
        ("forgetting_max:gt:8", True),
        ("bwt_ctp:gt:9", True),
        ("own_final:lt:40", True),
        ("rm:lt:36", True),
        ("t2i_r1:lt:17.4", False),
    ],
)
def test_a_condition_is_compared_with_the_run(tmp_path: Path, condition: str, holds: bool) -> None:
    (verdict,) = _judged(tmp_path, condition, runs=("ctp",)).verdicts
    assert verdict.holds is holds


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


def test_a_failure_counts_more_than_an_undefined_one(tmp_path: Path) -> None:
    with pytest.raises(GateFailed):
        enforce(_judged(tmp_path, "bwt_gem:lt:-5").verdicts)


def test_conditions_that_do_not_hold_pass(tmp_path: Path) -> None:
    enforce(_judged(tmp_path, "bwt_gem:lt:-50", runs=("ctp",)).verdicts)


def test_rows_outside_the_stream_alone_cannot_be_judged(tmp_path: Path) -> None:
    rows = [row(task="coco", task_step=None)]
    document = build(read_back(tmp_path / "r", rows), Request(fail_if=("bwt_gem:lt:0",)))
    with pytest.raises(BadInput, match="no run has rows on tasks of its stream"):
        enforce(document.verdicts)


def test_a_hole_that_was_allowed_cannot_be_judged(tmp_path: Path) -> None:
    rows = own_rows((OWN[0], (None, OWN[1][1]), OWN[2]))
    request = Request(fail_if=("forgetting_max:gt:0",), allow_missing=True)
    with pytest.raises(BadInput, match="it lacks rows that the metric needs"):
        enforce(build(read_back(tmp_path / "r", rows), request).verdicts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bwt_gm:lt:1", "unknown metric 'bwt_gm'; did you mean 'bwt_gem'"),
        ("bwt_gem.t2i_r2:lt:1", "unknown metric key 't2i_r2'; did you mean 't2i_r1'"),
        ("bwt_gem:<:1", "unknown operator '<'"),
        ("bwt_gem:lt:five", "'five' is not a number"),
        ("bwt_gem:lt:nan", "'nan' is not a number"),
        ("bwt_gem", "takes METRIC:OP:VALUE"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_gate(text, ["rm", "t2i_r1"])
