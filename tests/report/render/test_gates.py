"""The verdicts are the first thing of a report, named in words, with baselines and guards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, own_rows, read_back, row

from vlcpctl.report.render.files import markdown, write_report
from vlcpctl.report.render.page import page
from vlcpctl.report.report import Document, ReportRequest, build, identity


def _document(path: Path, *conditions: str, **fields: Any) -> Document:
    start = row(step=None, task="coco", task_step=None, run="base", checkpoint="b")
    last = row(step=2, task="coco", task_step=None, metrics={"rm": 40.0})
    rows = current([*own_rows(), last], start="b") + current([start])
    return build(read_back(path / "r", rows), ReportRequest(fail_if=conditions, **fields))


def _top(document: Document) -> str:
    """The page before its sections."""
    return page(document).partition("<body>")[2].partition("<main>")[0]


@pytest.mark.parametrize(
    ("conditions", "css", "line"),
    [
        (("bwt_gem:lt:-10",), "passes", "<b>Passes</b>: 1 of 1 verdicts"),
        (("bwt_gem:lt:-5", "rm:lt:1"), "fails", "<b>Fails</b>: 1 of 2 verdicts"),
        (("fwt_gem:lt:-5",), "undefined", "<b>Undefined</b>: 1 of 1 verdicts"),
    ],
)
def test_one_line_sums_up_the_verdicts(
    tmp_path: Path, conditions: tuple[str, ...], css: str, line: str
) -> None:
    text = _top(_document(tmp_path, *conditions))
    assert f'class="verdict {css}"' in text
    assert line in text
    assert text.index(line) < text.index("Conditions (--fail-if)")


def test_the_verdicts_are_above_notes_and_tables(tmp_path: Path) -> None:
    rows = own_rows() + [one | {"data": "other " + one["data"]} for one in own_rows(run="er")]
    document = build(read_back(tmp_path / "x", rows), ReportRequest(fail_if=("rm:lt:99",)))
    assert document.notes  # about the data, which are not the same in both runs
    text = page(document)
    places = [text.index(words) for words in ("<h1", 'class="verdict', 'class="attention', "<h2")]
    assert places == sorted(places)
    rows = read_back(tmp_path / "x", own_rows())
    write_report(document, identity(rows, ReportRequest()), tmp_path / "o", force=False)
    lines = (tmp_path / "o/report.md").read_text().splitlines()
    assert lines[2] == "**fails: 2 of 2 verdicts**"
    assert "\n".join(lines).count("### Conditions") == 1


def test_baselines_and_guards_are_named(tmp_path: Path) -> None:
    text = _top(_document(tmp_path, "drop:gt:5"))
    assert "Baseline, the model that each run started from: base" in text
    assert "Guards, data outside the stream: coco" in text
    assert "Baseline, --baseline: base" in _top(_document(tmp_path, baseline="base"))


def test_a_report_without_conditions_names_them_too(tmp_path: Path) -> None:
    document = _document(tmp_path)
    assert "verdict" not in _top(document)
    assert (
        "- Baseline, the model that each run started from: base\n"
        "- Guards, data outside the stream: coco\n"
    ) in markdown(document)


def test_a_report_without_guards_has_nothing_there(tmp_path: Path) -> None:
    document = build(read_back(tmp_path / "r", own_rows()), ReportRequest())
    assert "Baseline" not in _top(document)
    assert "Baseline" not in markdown(document)
