"""The page is self-contained, shows every number, and escapes every text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import OWN, current, merged_rows, own_rows, read_back, row

from vlcpctl.core.errors import OutputExists
from vlcpctl.report.page import opening_sentence, page
from vlcpctl.report.report import ReportRequest, build, identity
from vlcpctl.report.write import markdown, write_report

HOSTILE = "<script>alert('x')</script>|`&\"*"


def _rows() -> list[dict[str, Any]]:
    joint = own_rows((*[()] * 2, (70.0, 70.0, 70.0)), run="joint")
    first, second = ([*own_rows(seed=seed), *merged_rows(seed=seed)] for seed in (0, 1))
    return first + second + joint


def _page(path: Path, rows: list[dict[str, Any]], **fields: Any) -> str:
    return page(build(read_back(path / "r", rows), ReportRequest(**fields)))


def _charts(text: str) -> list[ET.Element]:
    found = [ET.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]
    return [chart for chart in found if chart.get("class") != "sample"]


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    text = _page(tmp_path, _rows())
    assert not re.search(r'https?:|src="(?!data:)|@import|url\(|<link', text)
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|localStorage", text)


def test_charts_are_well_formed_and_named(tmp_path: Path) -> None:
    charts = _charts(_page(tmp_path, _rows()))
    assert len(charts) == 3  # lines, and bars of each run
    for chart in charts:
        assert chart.get("role") == "img"
        assert chart.findtext("title")
        assert chart.findtext("desc")


def test_tables_say_what_their_cells_head(tmp_path: Path) -> None:
    text = _page(tmp_path, _rows())
    named = text.count("<caption>") + len(re.findall(r"<table [^>]*aria-label=", text))
    assert named == len(re.findall(r"<table\b", text)) > 3
    assert 'scope="col"' in text
    assert 'lang="en"' in text


@pytest.mark.parametrize(
    "rows",
    [
        own_rows(OWN[:1]),
        merged_rows(),
        [row(task="coco", task_step=None)],
        [row(step=None, task_step=0)],
        own_rows(((0.0,), (0.0, 0.0))),
        own_rows() + own_rows(protocol="multi-modal"),
    ],
    ids=["one task", "merged only", "transfer only", "start only", "all zero", "two tracks"],
)
def test_any_kind_of_rows_makes_a_report(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    document = build(read_back(tmp_path / "r", rows), ReportRequest())
    assert write_report(document, {"rows": "x"}, tmp_path / "out", force=False)
    assert (tmp_path / "out/report.html").read_text().endswith("</html>\n")


def test_the_same_rows_make_the_same_bytes(tmp_path: Path) -> None:
    rows = _rows()
    for name, order in (("a", 1), ("b", -1)):
        found = read_back(tmp_path / f"{name}.ndjson", rows[::order])
        request = ReportRequest()
        out = tmp_path / name
        write_report(build(found, request), identity(found, request), out, force=False)
    for name in ("report.html", "report.md", "facts.csv", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_report_that_is_there_is_kept_and_another_is_refused(tmp_path: Path) -> None:
    found = read_back(tmp_path / "r", own_rows())
    request, other = ReportRequest(), ReportRequest(metric="t2i_r1")
    out = tmp_path / "out"
    assert write_report(build(found, request), identity(found, request), out, force=False)
    assert not write_report(build(found, request), identity(found, request), out, force=False)
    with pytest.raises(OutputExists, match="metric was not set and is now 't2i_r1'"):
        write_report(build(found, other), identity(found, other), out, force=False)
    assert write_report(build(found, other), identity(found, other), out, force=True)
    assert (tmp_path / ".out.vlcpctl/replaced/out/report.html").exists()


def _numbered(count: int) -> list[dict[str, Any]]:
    return [one for place in range(count) for one in own_rows(run=f"run-{place:02d}")]


def test_many_runs_have_a_panel_and_a_picture_each(tmp_path: Path) -> None:
    text = _page(tmp_path, _numbered(10))
    panels = re.findall(r'<figure data-run="(\d+)"><figcaption>.*?</figcaption>(<svg|<img)', text)
    assert sorted(panels) == sorted((str(n), kind) for n in range(10) for kind in ("<svg", "<img"))
    assert text.count("<summary>Numbers</summary>") == 10
    assert "per task, last model" not in text  # bars of many would hide each other


def test_pages_of_many_runs_and_tasks_stay_small(tmp_path: Path) -> None:
    matrix = tuple(tuple(50.0 - task for task in range(step + 1)) for step in range(4))
    rows = [one for place in range(40) for one in own_rows(matrix, run=f"run-{place:02d}")]
    few, many = (len(_page(tmp_path, rows[: len(rows) // parts])) for parts in (2, 1))
    assert (many - few) / 20 < 7_000  # a run with its charts, matrix and tables


def test_runs_are_listed_once_with_what_they_are_sorted_by(tmp_path: Path) -> None:
    text = _page(tmp_path, _rows())
    listed = re.findall(r'<li data-run="\d+"( data-score[^>]*)', text)
    assert listed == [' data-score="70"', ' data-score="35" data-forgetting="9"']
    assert 'id="runs"' not in _page(tmp_path, own_rows())  # a single run


LESS = ((50.0,), (30.0, 60.0))  # 20 of 50 lost; the last task cannot lose anything yet
MORE = ((20.0,), (21.0, 25.0))


def _sentence(path: Path, rows: list[dict[str, Any]]) -> str:
    document = build(read_back(path / "rows", rows), ReportRequest())
    return opening_sentence(document, document.tracks[0])


def test_the_first_sentence_has_scores_and_what_was_lost_of_what_was_learned(
    tmp_path: Path,
) -> None:
    rows = [*own_rows(LESS, run="a", method="seqf"), *own_rows(MORE, run="b", method="seqf")]
    said = (
        "After 2 tasks, R@mean on the tasks' own galleries is highest for a, 45.00 (23.00 for b); "
        "on earlier tasks, since each was just learned, a lost 20.00 of 50.00, b gained 1.00 on "
        "20.00."
    )
    assert _sentence(tmp_path, rows) == said
    many = []
    for place, name in enumerate("abcdef"):
        many += own_rows(((50.0,), (30.0, 60.0 - place)), run=name, method="seqf")
    assert "is highest for a, 45.00 (44.50 for b, 42.50 for f);" in _sentence(tmp_path, many)
    one = _sentence(tmp_path, own_rows(((50.0,),), run="a", method="seqf"))
    assert one == "After one task, R@mean on the tasks' own galleries is 50.00 for a."
    text = _page(tmp_path, rows)
    chart = text.index("<title>R@mean after each step, mean over the tasks so far")
    assert text.index('<p class="lead">After 2 tasks') < chart < text.index("<table")


@pytest.mark.parametrize(
    ("conditions", "css", "line"),
    [
        (("bwt_gem:lt:-10",), "passes", "<b>Passes</b>: 1 of 1 verdicts"),
        (("bwt_gem:lt:-5", "rm:lt:1"), "fails", "<b>Fails</b>: 1 of 2 verdicts"),
        (("fwt_gem:lt:-5",), "undefined", "<b>Undefined</b>: 1 of 1 verdicts"),
    ],
)
def test_verdicts_are_above_notes_and_tables_with_baselines_and_guards(
    tmp_path: Path, conditions: tuple[str, ...], css: str, line: str
) -> None:
    start = row(step=None, task="coco", task_step=None, run="base", checkpoint="b")
    last = row(step=2, task="coco", task_step=None, metrics={"rm": 40.0})
    rows = current([*own_rows(), last], start="b") + current([start])
    text = _page(tmp_path, rows, fail_if=conditions)
    top = text.partition("<body>")[2].partition("<main>")[0]
    assert "Baseline, the model that each run started from: base" in top
    assert "Guards, data outside the stream: coco" in top
    words = ("<h1", f'class="verdict {css}"', line, "Conditions (--fail-if)", "<h2")
    places = [text.index(one) for one in words]
    assert places == sorted(places)
    document = build(read_back(tmp_path / "r", rows), ReportRequest(fail_if=conditions))
    assert markdown(document).splitlines()[2].startswith(f"**{css}: 1 of ")


def test_the_distance_to_the_oracle_is_below_its_column_and_one_number_is_one_column(
    tmp_path: Path,
) -> None:
    outside = [row(step=2, task="coco", task_step=None, seed=seed) for seed in (0, 1)]
    joint = own_rows(((), (), (70.0, 70.0, 70.0)), run="joint", seed=1, checkpoint="j-1")
    text = _page(tmp_path, [*_rows(), *joint, *outside])
    assert '<span class="below">95 % interval</span>' in text
    (table,) = re.findall(r"<caption>Metrics of newer benchmarks.*?</table>", text)
    assert re.findall("<code>(.*?)</code>", table) == ["own_final", "zs_fomo"]
    assert "own_final: the same number as last_zscl and ka_fomo" in text
