"""The summary on the page of a GitHub Actions job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.eval_rows import merged_rows, own_rows, read_back

from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.write import STEP_SUMMARY, append_step_summary, step_summary


def _document(path: Path, *conditions: str, run: str = "ctp", steps: int = 3) -> Document:
    rows = (own_rows() + merged_rows())[: steps * (steps + 1) // 2]
    found = read_back(path / "r", [one | {"run": run} for one in rows])
    return build(found, ReportRequest(fail_if=conditions, undefined="pass"))


@pytest.mark.parametrize(
    ("conditions", "line"),
    [
        (("bwt_gem:lt:-10", "rm:lt:1"), "**passes: 2 of 2 verdicts**"),
        (("bwt_gem:lt:-5", "rm:lt:1"), "**fails: 1 of 2 verdicts**"),
        (("fwt_gem:lt:-5", "rm:lt:1"), "**undefined: 1 of 2 verdicts**"),
        (("bwt_gem:lt:0", "fwt_gem:lt:0"), "**fails: 1 of 2 verdicts, and 1 undefined**"),
    ],
)
def test_the_first_line_is_the_outcome(
    tmp_path: Path, conditions: tuple[str, ...], line: str
) -> None:
    text = step_summary(_document(tmp_path, *conditions))
    assert text.splitlines()[:3] == ["## Forgetting report", "", line]
    assert conditions[0].replace("_", "\\_") in text


def test_many_verdicts_are_cut_and_failures_come_first(tmp_path: Path) -> None:
    document = _document(tmp_path, *["rm:lt:1"] * 300, "rm:lt:99")
    text = step_summary(document)
    assert "101 more are not shown." in text
    assert text.index("**fails** |") < text.index("passes |")


def test_summaries_are_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "summary.md"
    out.write_text("before\n")
    monkeypatch.setenv(STEP_SUMMARY, str(out))
    document = _document(tmp_path, "rm:lt:1")
    append_step_summary(document)
    append_step_summary(document)
    assert out.read_text() == "before\n" + 2 * step_summary(document)
    append_step_summary(_document(tmp_path))
    assert out.read_text().count("Forgetting report") == 2


def test_a_summary_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = _document(tmp_path, "rm:lt:1")
    os.mkfifo(tmp_path / "pipe")
    for name in ("", "none/summary.md", "pipe"):
        monkeypatch.setenv(STEP_SUMMARY, str(tmp_path / name))
        append_step_summary(document)
        assert capsys.readouterr().err.startswith("warning: cannot write the summary to ")
    monkeypatch.setenv(STEP_SUMMARY, "")
    append_step_summary(document)
    assert capsys.readouterr().err == ""
