"""Files that somebody edited are searched, and keep what a deletion does not remove."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from vlcpctl.deletion import reports
from vlcpctl.deletion.tasks import SKIPPED, Drop, skipped_lines

KEY, OTHER = "a" * 32, "b" * 32


def test_bytes_of_a_report_that_are_not_utf8_stay(tmp_path: Path) -> None:
    report, new = tmp_path / "report", tmp_path / "new"
    report.mkdir()
    told = {"content": "0" * 32, "identity": {}, "forgotten": [{"key": KEY}, {"key": OTHER}]}
    (report / "summary.json").write_text(json.dumps({"schema": "vlcpctl.report/1", **told}))
    page = report / "report.html"
    page.write_bytes(f"<li>{KEY}\xe9</li>\n<li>{OTHER}\xe9</li>\r\n".encode("latin-1"))
    shutil.copytree(report, new)
    assert reports.files_with(report, {KEY}) == {"report.html": 1}
    reports.rewrite(report, new, {KEY})
    assert (new / "report.html").read_bytes() == f"<li>{OTHER}\xe9</li>\r\n".encode("latin-1")
    assert reports.keys_of(new) == {OTHER}


def test_lines_of_other_json_among_skipped_samples_are_about_no_pair(tmp_path: Path) -> None:
    text = f'[1]\nnull\n"{KEY}"\n{{"detail": "repeats an earlier pair (key {KEY})"}}\n'
    (tmp_path / SKIPPED).write_text(text)
    assert skipped_lines(tmp_path, Drop(frozenset({KEY}))) == 1
