"""The sentence that a page opens with says what the tables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.eval_rows import own_rows, read_back

from vlcpctl.report.render.opening import opening_sentence
from vlcpctl.report.render.page import page
from vlcpctl.report.report import ReportRequest, build

LESS = ((50.0,), (30.0, 60.0))  # 20 of 50 lost; the last task cannot lose anything yet
MORE = ((20.0,), (21.0, 25.0))


def sentence(path: Path, rows: list[dict[str, Any]]) -> str:
    document = build(read_back(path / "rows", rows), ReportRequest())
    return opening_sentence(document, document.tracks[0])


def test_two_runs_have_their_scores_and_what_they_lost(tmp_path: Path) -> None:
    rows = [*own_rows(LESS, run="a", method="seqf"), *own_rows(MORE, run="b", method="seqf")]
    assert sentence(tmp_path, rows) == (
        "After 2 tasks, rm on the tasks' own galleries is highest for a, 45.00 (23.00 for b); on "
        "earlier tasks, since each was just learned, a lost 20.00 of 50.00, b gained 1.00 on 20.00."
    )


def test_of_many_runs_the_first_two_and_the_last_are_named(tmp_path: Path) -> None:
    rows = []
    for place, name in enumerate("abcdef"):
        rows += own_rows(((50.0,), (30.0, 60.0 - place)), run=name, method="seqf")
    text = sentence(tmp_path, rows)
    assert "is highest for a, 45.00 (44.50 for b, 42.50 for f);" in text


def test_one_task_has_a_score_and_no_loss(tmp_path: Path) -> None:
    text = sentence(tmp_path, own_rows(((50.0,),), run="a", method="seqf"))
    assert text == "After one task, rm on the tasks' own galleries is 50.00 for a."


def test_the_page_opens_with_it_and_with_the_chart(tmp_path: Path) -> None:
    rows = [*own_rows(LESS, run="a", method="seqf"), *own_rows(MORE, run="b", method="seqf")]
    text = page(build(read_back(tmp_path / "rows", rows), ReportRequest()))
    chart = text.index("rm after each step, mean over the tasks so far")
    assert text.index('<p class="lead">After 2 tasks') < chart < text.index("<table")
    assert text.count("<figcaption>rm after each step, mean over the tasks so far") == 1
