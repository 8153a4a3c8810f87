"""The page is self-contained, every number on it is in facts.csv, and names are text everywhere."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.collected import reported
from support.eval_rows import (
    OWN,
    current,
    merged_rows,
    outside_rows,
    own_rows,
    read_back,
    row,
    start_rows,
)
from support.hostile_names import HOSTILE, Tags
from support.report_rows import run_rows
from support.run_checkpoints import write_run

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import size
from vlcpctl.files.rows import row_of
from vlcpctl.report import html
from vlcpctl.report.formats import print_report
from vlcpctl.report.page import opening_sentence, page
from vlcpctl.report.report import (
    Document,
    Files,
    ReportRequest,
    as_line,
    build,
    facts_csv,
    identity,
    read_facts,
)
from vlcpctl.report.training import read_cards
from vlcpctl.report.write import markdown, write_report


def _rows() -> list[dict[str, Any]]:
    joint = own_rows((*[()] * 2, (70.0, 70.0, 70.0)), run="joint")
    first, second = ([*own_rows(seed=seed), *merged_rows(seed=seed)] for seed in (0, 1))
    return first + second + joint


def _page(path: Path, rows: list[dict[str, Any]], **fields: Any) -> str:
    return page(reported(path, rows, **fields))


def _charts(text: str) -> list[ET.Element]:
    found = [ET.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]
    return [chart for chart in found if chart.get("class") != "sample"]


def test_the_page_needs_no_network_and_its_charts_and_tables_have_names(tmp_path: Path) -> None:
    text = _page(tmp_path, _rows())
    assert not re.search(r'https?:|src="(?!data:)|@import|url\(|<link', text)
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|localStorage", text)
    charts = _charts(text)
    assert len(charts) == 3  # lines, and bars of each run
    for chart in charts:
        assert chart.get("role") == "img"
        assert chart.findtext("title")
        assert chart.findtext("desc")
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
    document = reported(tmp_path, rows)
    assert write_report(document, {"rows": "x"}, tmp_path / "out", force=False)
    assert (tmp_path / "out/report.html").read_text().endswith("</html>\n")


def test_the_same_rows_make_the_same_bytes(tmp_path: Path) -> None:
    rows = [*current(_rows(), start="S"), *outside_rows([7, 6, 5], "flickr"), *outside_rows([7, 6])]
    rows += start_rows({"flickr": 8, "coco": 8}) + current(own_rows(protocol="a second track"))
    for name, order in (("a", 1), ("b", -1)):
        found = read_back(tmp_path / f"{name}.ndjson", rows[::order])
        request = ReportRequest()
        out = tmp_path / name
        write_report(build(found, request), identity(found, request), out, force=False)
    for name in ("report.html", "report.md", "facts.csv", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def _numbered(count: int) -> list[dict[str, Any]]:
    return [one for place in range(count) for one in own_rows(run=f"run-{place:02d}")]


def test_many_runs_have_a_panel_and_a_folded_matrix_each(tmp_path: Path) -> None:
    text = _page(tmp_path, _numbered(10))
    panels = re.findall(
        r'<figure data-run="(\d+)"><figcaption>.*?</figcaption><(svg|details)', text
    )
    wanted = [(str(n), kind) for n in range(10) for kind in ("svg", "details")]
    assert sorted(panels) == sorted(wanted)
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
    document = reported(path, rows)
    return opening_sentence(document, document.tracks[0])


def test_the_first_sentence_has_scores_and_what_was_lost_of_what_was_learned(
    tmp_path: Path,
) -> None:
    rows = [*own_rows(LESS, run="a", method="seqf"), *own_rows(MORE, run="b", method="seqf")]
    said = (
        "After 2 tasks, R@mean on the tasks' own galleries is 45.00 for a, which lost 20.00 of "
        "50.00 learned on earlier tasks; 23.00 for b, which gained 1.00 on 20.00 learned on "
        "earlier tasks."
    )
    assert _sentence(tmp_path, rows) == said
    many = []
    for place, name in enumerate("abcdef"):
        many += own_rows(((50.0,), (30.0, 60.0 - place)), run=name, method="seqf")
    shown = re.findall(r"(\S+) for (\w),", _sentence(tmp_path, many))
    assert shown == [("45.00", "a"), ("44.50", "b"), ("42.50", "f")], "highest and lowest"
    one = _sentence(tmp_path, own_rows(((50.0,),), run="a", method="seqf"))
    assert one == "After 1 task, R@mean on the tasks' own galleries is 50.00 for a."
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
    document = reported(tmp_path, rows, fail_if=conditions)
    assert markdown(document).splitlines()[2].startswith(f"**{css}: 1 of ")


NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])")


def _shown(text: str) -> Iterator[tuple[str, str]]:
    """(title of the table, number with decimals) of each cell below the heads of the page."""
    body = text.partition("<main>")[2].partition("</main>")[0].replace("\u2212", "-")
    for table in re.findall(r"<table.*?</table>", body, flags=re.DOTALL):
        title = re.search(r'<caption>(.*?)</caption>|aria-label="([^"]*)"', table)
        for cell in re.split(r"<td|<th", table.partition("</thead>")[2]):
            for number in NUMBER.findall(re.sub(r"^[^>]*>|<[^>]*>", " ", cell)):
                yield str(title and (title[1] or title[2])), number


def _derived(facts: list[dict[str, Any]]) -> Iterator[list[float]]:
    """The values over seeds of what the tables compute from scores on own galleries."""
    scores = [f for f in facts if f["metric"] == "score" and f["gallery"] == "own"]
    for _, found in groupby(scores, lambda one: (one["run"], one["key"], one["split"])):
        of = {(f["step"], f["data"]): f["values"] for f in found}
        names = sorted({data for _, data in of if data[0].isdigit()})  # not the guard
        last = max(int(step) for step, _ in of if step != "start")
        pairs = [
            (of[str(task), name], of[str(last), name])
            for task, name in enumerate(names[:last])
            if (str(task), name) in of
        ]
        lost = [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]
        yield from lost
        yield from ([100 * (a - b) / a for a, b in zip(*pair, strict=True) if a] for pair in pairs)
        sides = [list(zip(*side, strict=True)) for side in zip(*pairs, strict=True)]
        if sides:
            yield [fmean(of_seed) for of_seed in zip(*lost, strict=True)]


def _known(document: Document) -> set[str]:
    facts = read_facts("".join(facts_csv(document)))
    numbers = [
        one[name]
        for one in facts
        for name in ("value", "sd", "low", "high")
        if one[name] is not None
    ]
    for values in _derived(facts):
        numbers += [fmean(values), *([stdev(values)] if len(values) > 1 else [])]
    bytes_of = [one["value"] for one in facts if one["metric"] == "cost"]
    found = {size(round(value)).split()[0] for value in bytes_of}
    return found | {
        f"{round(one, digits) + 0.0:.{digits}f}" for one in numbers for digits in (1, 2)
    }


def _of_runs(path: Path) -> Document:
    return reported(path, run_rows(4, 5, 2, joint=True))


def _of_checkpoints(path: Path) -> Document:
    rows = read_back(path / "rows.ndjson", own_rows())
    cards = read_cards([write_run(path / "ctp", slots=1500)], rows)
    return build(rows, ReportRequest(), Files(cards=cards))


@pytest.mark.parametrize("make", [_of_runs, _of_checkpoints])
def test_every_number_of_the_page_is_in_facts_csv(make: Any, tmp_path: Path) -> None:
    document = make(tmp_path)
    shown, known = [*_shown(page(document))], _known(document)
    assert len(shown) > 15
    assert [one for one in shown if one[1] not in known] == []


FIELDS = ("run", "method", "task", "split", "protocol", "evaluator", "stream", "checkpoint")
MARKUP = re.compile(r"(?<!\\)(\[|\]\(|<(?!/?(b|i)>)|`|\$)|(?<!\\)https?:|www\.[a-z]")


def _named(**fields: Any) -> list[dict[str, Any]]:
    name = fields.pop("task", None)
    rows = current([*own_rows(), *merged_rows(), row(task="coco", task_step=None)], **fields)
    if name is None:
        return rows
    return [
        one | {"task": one["task"] + name, "tasks": [task + name for task in one["tasks"]]}
        for one in rows
    ]


def test_attributes_that_vary_are_written_with_their_quotes_escaped() -> None:
    templates = sorted(Path(html.__file__).parent.glob("templates/*.html"))
    assert len(templates) > 1
    for path in templates:
        for found in re.findall(r'="[^"]*\{\{.*?\}\}', path.read_text(encoding="utf-8")):
            assert found.startswith('="data:'), f"{path.name}: {found}; use attributes(...)"


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("field", FIELDS)
def test_a_name_is_text_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, name: str
) -> None:
    document = reported(tmp_path, _named(**{field: name}), allow_missing=True)
    usual = reported(tmp_path, _named(), allow_missing=True)
    print_report(document.notes, document.sections())
    terminal = capsys.readouterr().out
    assert terminal.replace("\n", "").isprintable()
    shown = page(document)
    assert Tags(shown).found == Tags(page(usual)).found
    text = markdown(document)
    for made in (shown, text):
        assert made.replace("\n", "").replace("\u2212", "").isprintable()
    found = re.sub(r"\\.", "", text)
    assert MARKUP.findall(found) == MARKUP.findall(re.sub(r"\\.", "", markdown(usual)))
    assert {line.count("|") for line in found.splitlines() if line.startswith("| ")} == {
        line.count("|")
        for line in re.sub(r"\\.", "", markdown(usual)).splitlines()
        if line.startswith("| ")
    } or field in {"method", "run"}  # a method that is not the run's name adds a column
    assert "".join(facts_csv(document)).replace("\n", "").isprintable()


def test_the_summary_has_names_as_they_are(tmp_path: Path) -> None:
    name = HOSTILE["escape codes"]
    rows = read_back(tmp_path / "r", _named(run=name))
    document = build(rows, ReportRequest(fail_if=["rm:lt:1"]))
    line = as_line(document, identity(rows, ReportRequest()))
    assert line.isprintable()
    assert json.loads(line)["verdicts"][0]["run"] == name


NAMES = st.text(max_size=6) | st.sampled_from(sorted(HOSTILE.values()))
NAMES = NAMES.filter(lambda name: not re.search("[\ud800-\udfff]", name))
STEPS = st.none() | st.integers(0, 4) | st.sampled_from([150, 999])
VALUES = st.floats(-1e12, 1e12) | st.sampled_from([0.0, 50.0, 1e12, -1e12, 1e-300])


@st.composite
def _any_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    runs = draw(st.lists(NAMES, min_size=1, max_size=2))
    found = []
    for _ in range(draw(st.integers(1, 8))):
        gallery = draw(st.sampled_from(["own", "own", "own", "merged"]))
        place = draw(STEPS)
        fields = {
            "run": draw(st.sampled_from(runs)),
            "seed": draw(st.integers(0, 1)),
            "step": draw(STEPS),
            "gallery": gallery,
            "task": "merged" if gallery == "merged" else f"{place}",
            "tasks": [f"{n}" for n in range((place or 0) + 1)] if gallery == "merged" else [],
            "metrics": draw(st.dictionaries(st.sampled_from(["rm", "acc1", "x"]), VALUES)),
            "checkpoint": draw(st.sampled_from(["S", "c"])),
            "start": draw(st.sampled_from([None, None, "S"])),
            "data": draw(st.sampled_from([f"{gallery} {place}", "other"])),
            "limit": draw(st.sampled_from([None, None, None, 3])),
            "config": draw(st.sampled_from([None, {"id": "a", "values": {"lr": 1}}])),
            "options": draw(st.sampled_from([{}, {"duplicates": "unite"}])),
        }
        found.append(row() | fields | {"task_step": place})
    return found


def _report_or_refuse(rows: list[dict[str, Any]], *, allow_mixed: bool) -> None:
    allowed = ("limit,options,data,counts,checkpoint,config",) if allow_mixed else ()
    request = ReportRequest(allow_missing=True, allow_mixed=allowed)
    found = [row_of(one, f"rows:{number}") for number, one in enumerate(rows, 1)]
    try:
        document = build(found, request)
    except BadInput:
        return
    shown = page(document) + markdown(document) + as_line(document, identity(found, request))
    assert len(shown) < 5_000_000
    print_report(document.notes, document.sections())


@settings(max_examples=20)
@given(_any_rows(), st.booleans())
def test_any_rows_are_a_report_or_one_error(rows: list[dict[str, Any]], allow_mixed: bool) -> None:
    _report_or_refuse(rows, allow_mixed=allow_mixed)
