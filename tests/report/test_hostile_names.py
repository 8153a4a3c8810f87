"""Names of rows are shown as text in every format, whatever characters they have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.collected import reported
from support.eval_rows import current, merged_rows, own_rows, read_back, row
from support.hostile_names import HOSTILE, Tags

from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import row_of
from vlcpctl.report import html
from vlcpctl.report.formats import print_report
from vlcpctl.report.page import page
from vlcpctl.report.report import Document, ReportRequest, as_line, build, facts_csv, identity
from vlcpctl.report.write import markdown

FIELDS = ("run", "method", "task", "split", "protocol", "evaluator", "stream", "checkpoint")
MARKUP = re.compile(r"(?<!\\)(\[|\]\(|<(?!/?(b|i)>)|`|\$)|(?<!\\)https?:|www\.[a-z]")


def _rows(**fields: Any) -> list[dict[str, Any]]:
    name = fields.pop("task", None)
    rows = current([*own_rows(), *merged_rows(), row(task="coco", task_step=None)], **fields)
    if name is None:
        return rows
    return [
        one | {"task": one["task"] + name, "tasks": [task + name for task in one["tasks"]]}
        for one in rows
    ]


def _document(path: Path, rows: list[dict[str, Any]]) -> Document:
    return reported(path, rows, allow_missing=True)


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
    document = _document(tmp_path, _rows(**{field: name}))
    usual = _document(tmp_path, _rows())
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
    rows = read_back(tmp_path / "r", _rows(run=name))
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
