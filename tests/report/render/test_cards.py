"""What checkpoints record, in each file of a report."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from support.eval_rows import own_rows, read_back
from support.run_checkpoints import log_lines, write_run, write_step

from vlcpctl.files.rows import Row
from vlcpctl.report.cards import tables
from vlcpctl.report.cards.runs import read_cards
from vlcpctl.report.render.files import write_report
from vlcpctl.report.report import Files, ReportRequest, build, identity

ARGV = ["/usr/bin/vlcpctl", "train-step", "a stream/00", "-o", "<b>"]


def _rows(path: Path) -> list[Row]:
    rows = own_rows() + own_rows(run="other", checkpoint="x")
    return read_back(path / "r", rows)


def _written(path: Path, rows: list[Row], *checkpoints: Path) -> Path:
    cards = read_cards(checkpoints, rows) if checkpoints else None
    request = ReportRequest(allow_mixed=("checkpoint",))
    document = build(rows, request, Files(cards=cards))
    write_report(document, identity(rows, request, Files(cards=cards)), path / "o", force=True)
    return path / "o"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "ctp"
    for step in range(3):
        write_step(run / str(step), step, log_lines(range(10), **{"ctp/m": 1.0}), slots=1500)
    path = run / "1" / "checkpoint.json"
    entries = json.loads(path.read_text())
    entries["made_by"]["argv"] = ARGV
    path.write_text(json.dumps(entries))
    return _written(tmp_path, _rows(tmp_path), tmp_path / "runs")


def test_the_page_has_losses_costs_settings_and_commands(report: Path) -> None:
    text = (report / "report.html").read_text()
    for words in ("Cost of the training", "Cost per task", "Loss terms over the steps"):
        assert words in text
    assert "vlcpctl train-step &#x27;a stream/00&#x27;" in text or "'a stream/00'" in text
    assert "<b>'" not in text
    titles = re.findall(r"<title>([^<]*)</title>", text)
    assert {"loss over the steps", "ctp/m over the steps"} <= set(titles)
    assert "preset tiny, not in the paper" in text
    for chart in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ET.fromstring(chart)


def test_markdown_has_the_tables(report: Path) -> None:
    text = (report / "report.md").read_text()
    assert "| ctp | 3 | 12.00 | 960 | 80 | 1.50 kB | 2.00 kB |" in text
    assert "| 1 | 01-people | 4.00 | 320 | 80 | 1.50 kB | 2.00 kB |" in text
    assert "### ctp: checkpoints" in text
    assert "| lr | 0.1 | preset tiny, not in the paper |" in text


def test_the_summary_has_what_was_recorded(report: Path) -> None:
    summary = json.loads((report / "summary.json").read_text())
    (run,) = summary["checkpoints"]
    assert (run["run"], run["config"]["values"]["settings"]["lr"]) == ("ctp", 0.1)
    one = run["checkpoints"][1]
    assert (one["seed"], one["step"], one["checkpoint"], one["parents"]) == (0, 1, "c1", ["c0"])
    assert (one["seconds"], one["pairs"], one["state_bytes"]) == (4.0, 320, 1500)
    assert one["last_terms"] == {"loss": 3.1, "ctp/m": 1.0}
    assert one["command"] == "vlcpctl train-step 'a stream/00' -o '<b>'"
    assert "checkpoints" in summary["identity"]


def test_a_report_without_checkpoints_has_no_trace_of_them(tmp_path: Path) -> None:
    out = _written(tmp_path, _rows(tmp_path))
    summary = json.loads((out / "summary.json").read_text())
    assert "checkpoints" not in summary
    assert "checkpoints" not in summary["identity"]
    assert "Training</h2>" not in (out / "report.html").read_text()


def test_stability_against_plasticity_is_drawn_and_written(tmp_path: Path) -> None:
    out = _written(tmp_path, _rows(tmp_path))
    text = (out / "report.html").read_text()
    assert "<title>Stability against plasticity in rm</title>" in text
    assert "100 sum_{j&lt;T-1} R[T-1][j] / sum_{j&lt;T-1} R[j][j]" in text
    assert "| ctp | 43.33 | 82.00 |" in (out / "report.md").read_text()


def test_names_are_text(tmp_path: Path) -> None:
    hostile = "<script>|`"
    write_step(
        tmp_path / "c",
        0,
        log_lines(range(2), **{"<script>": 1.0}),
        run=hostile,
        method=hostile,
        task_names=[hostile],
        model={"name": hostile},
        origins={"lr": hostile},
    )
    out = _written(tmp_path, _rows(tmp_path), tmp_path / "c")
    assert (out / "report.html").read_text().count("<script") == 1  # page.js
    assert "<script" not in (out / "report.md").read_text().replace("\\<script", "")


def test_many_checkpoints_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_LINES", 2)
    monkeypatch.setattr(tables, "_LEAST_LINES", 2)
    write_run(tmp_path / "runs")
    text = (_written(tmp_path, _rows(tmp_path), tmp_path / "runs") / "report.md").read_text()
    assert "shows the first 2 of 3 lines" in text
    assert text.count("1 more checkpoints are in summary.json") == 2


def test_the_same_checkpoints_make_the_same_bytes(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    rows = _rows(tmp_path)
    one = {
        path.name: path.read_bytes()
        for path in _written(tmp_path, rows, tmp_path / "runs").iterdir()
    }
    (tmp_path / "runs").rename(tmp_path / "moved")
    again = _written(tmp_path, rows, tmp_path / "moved" / "01-people", tmp_path / "moved")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == one
