"""What `update` says of a line that failed."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.jobs.script import CommandLine
from vlcpctl.production.attempt import Attempt
from vlcpctl.production.layout import Layout
from vlcpctl.production.settings import Settings
from vlcpctl.production.update import _why_failed


def test_only_a_report_with_an_undefined_condition_asks_for_other_conditions(
    tmp_path: Path,
) -> None:
    (tmp_path / "pending/report").mkdir(parents=True)
    (tmp_path / "pending/report/summary.json").touch()  # also of an earlier judgement
    facts = {"number": 1, "parent": "", "data": "", "sources": (), "measured": ()}
    attempt = Attempt(**facts, settings=Settings(run="shop"), fresh_state=False)  # type: ignore[arg-type]

    def said(command: str, code: int) -> str:
        return _why_failed(Layout(tmp_path), attempt, CommandLine(8, (command,)), code)

    assert "a condition of --fail-if is undefined" in said("forgetting-report", 3)
    for command, code in (("train-step", 3), ("forgetting-report", 1)):
        assert said(command, code).startswith(
            f"week 1 is not accepted: line 8, {command}, ended with code {code}; correct what its "
        )
