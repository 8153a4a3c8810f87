"""The page is self-contained, shows every number, and escapes every text."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import OWN, merged_rows, own_rows, read_back, row

from vlcpctl.core.errors import OutputExists
from vlcpctl.report.build import build
from vlcpctl.report.charts.frame import colour, shortened
from vlcpctl.report.charts.lines import Series, line_chart
from vlcpctl.report.directory import write_report
from vlcpctl.report.identity import identity
from vlcpctl.report.render.markdown import markdown
from vlcpctl.report.render.page import page
from vlcpctl.report.request import Request

HOSTILE = "<script>alert('x')</script>|`&\"*"


def _rows() -> list[dict[str, Any]]:
    joint = own_rows((*[()] * 2, (70.0, 70.0, 70.0)), run="joint")
    first, second = ([*own_rows(seed=seed), *merged_rows(seed=seed)] for seed in (0, 1))
    return first + second + joint


def _page(path: Path, rows: list[dict[str, Any]], **fields: Any) -> str:
    return page(build(read_back(path / "r", rows), Request(**fields)))


def _charts(text: str) -> list[ET.Element]:
    return [ET.fromstring(chart) for chart in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    text = _page(tmp_path, _rows())
    assert not re.search(r"https?:|src=|@import|url\(|<link|<script", text)


def test_charts_are_well_formed_and_named(tmp_path: Path) -> None:
    charts = _charts(_page(tmp_path, _rows()))
    assert len(charts) == 3  # lines, one heat-map (joint has a single step), bars
    for chart in charts:
        assert chart.get("role") == "img"
        assert chart.findtext("title")
        assert chart.findtext("desc")


def test_no_text_is_markup(tmp_path: Path) -> None:
    rows = [one | {"task": one["task"] + HOSTILE} for one in own_rows(run=HOSTILE, method=HOSTILE)]
    text = _page(tmp_path, rows)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert _charts(text)


def test_tables_say_what_their_cells_head(tmp_path: Path) -> None:
    text = _page(tmp_path, _rows())
    assert text.count("<caption>") == text.count("<table>") > 3
    assert 'scope="col"' in text
    assert 'lang="en"' in text


def test_every_formula_is_on_the_page(tmp_path: Path) -> None:
    text = _page(tmp_path, _rows())
    assert "1/(T-1) sum_{j&lt;T-1} (R[T-1][j] - R[j][j])" in text
    assert "positive = forgetting (CTP's BWT)" in text


def test_the_page_is_light_dark_and_printable(tmp_path: Path) -> None:
    text = _page(tmp_path, own_rows())
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


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
    document = build(read_back(tmp_path / "r", rows), Request())
    assert write_report(document, {"rows": "x"}, tmp_path / "out", force=False)
    assert (tmp_path / "out/report.html").read_text().endswith("</html>\n")


def test_the_same_rows_make_the_same_bytes(tmp_path: Path) -> None:
    rows = _rows()
    for name, order in (("a", 1), ("b", -1)):
        found = read_back(tmp_path / f"{name}.ndjson", rows[::order])
        request = Request()
        out = tmp_path / name
        write_report(build(found, request), identity(found, request), out, force=False)
    for name in ("report.html", "report.md", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_report_that_is_there_is_kept_and_another_is_refused(tmp_path: Path) -> None:
    found = read_back(tmp_path / "r", own_rows())
    request, other = Request(), Request(metric="t2i_r1")
    out = tmp_path / "out"
    assert write_report(build(found, request), identity(found, request), out, force=False)
    assert not write_report(build(found, request), identity(found, request), out, force=False)
    with pytest.raises(OutputExists, match="metric was not set and is now 't2i_r1'"):
        write_report(build(found, other), identity(found, other), out, force=False)
    assert write_report(build(found, other), identity(found, other), out, force=True)
    assert (tmp_path / ".out.vlcpctl/replaced/out/report.html").exists()


def test_the_summary_has_every_metric_for_every_key(tmp_path: Path) -> None:
    found = read_back(tmp_path / "r", own_rows() + merged_rows())
    request = Request(fail_if=("bwt_gem:lt:0",))
    write_report(build(found, request), identity(found, request), tmp_path / "o", force=False)
    summary = json.loads((tmp_path / "o/summary.json").read_text())
    assert summary["schema"] == "vlcpctl.report/1"
    (run,) = summary["tracks"][0]["runs"]
    assert run["summary"]["bwt_gem"]["t2i_r1"] == {"mean": -4.5, "sd": None, "values": [-4.5]}
    assert run["summary"]["bwt_ctp"]["rm"]["mean"] == 9.5
    assert run["summary"]["fwt_gem"]["rm"] is None
    assert run["matrices"]["own"]["rm"][0] == [60.0, None, None]
    assert summary["gates"][0]["holds"] is True


def test_markdown_shows_hostile_names_as_they_are(tmp_path: Path) -> None:
    document = build(read_back(tmp_path / "r", own_rows(run=HOSTILE)), Request())
    text = markdown("t", document.notes, document.sections(), document.sections()[0][1][0])
    assert "<script" not in text.replace("\\<script", "")
    assert "\\|\\`\\&" in text
    tables = [list(group) for is_table, group in groupby(text.splitlines(), _is_table) if is_table]
    for table in tables:
        assert len({line.replace("\\|", "").count("|") for line in table}) == 1


def _is_table(line: str) -> bool:
    return line.startswith("|")


def test_names_at_line_ends_do_not_overlap() -> None:
    points = tuple((step, 50.0, 50.0, 50.0) for step in range(3))
    chart = line_chart("t", [Series(f"run {i}", colour(i), points) for i in range(8)])
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="name', chart))
    assert min(b - a for a, b in pairwise(heights)) >= 14


def test_runs_beyond_the_palette_are_dashed() -> None:
    assert len({colour(index) for index in range(18)}) == 18


def test_a_label_that_is_too_long_is_cut() -> None:
    assert shortened("a name that goes on and on", 60) == "a name t\u2026"
