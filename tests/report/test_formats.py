"""Tables as text, CSV and LaTeX, and verdicts as JUnit XML: widths, numbers, any name."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.eval_rows import row

from vlcpctl.core.errors import BadInput, OutputExists, UsageError
from vlcpctl.report.formats import (
    junit,
    latex,
    print_report,
    styled,
    table_csv,
    table_latex,
)
from vlcpctl.report.gates import Verdict
from vlcpctl.report.table import Column, RowGroup, Table, TableCell
from vlcpctl.report.tables import measured_table
from vlcpctl.report.write import check_junit_path, is_junit, write_junit

_BEST = TableCell("-51.00", "12.4", -51.0, is_strong=True)
TABLE = Table(
    "Recall & forgetting in %",
    (
        Column("run", is_number=False),
        Column("R@1", over="Image to text"),
        Column("R@5", over="Image to text"),
        Column("kind"),
    ),
    (
        RowGroup("", ((TableCell("joint"), TableCell("70.12"), TableCell(""), TableCell("yes")),)),
        RowGroup(
            "Memory_free",
            (
                (TableCell("[a] 50%"), _BEST, TableCell("+1.5"), TableCell("-")),
                (
                    TableCell("b_c"),
                    TableCell("-", is_faint=True),
                    TableCell("100.0"),
                    TableCell(""),
                ),
            ),
        ),
    ),
    ("positive = forgetting -- see #2",),
)


def test_a_latex_table_has_its_numbers_headings_and_notes() -> None:
    text = table_latex(TABLE, "mine")
    parts = (
        r"\caption{Recall \& forgetting in \%}",
        r"\label{tab:mine}",
        r"\begin{lrbox}{0}",
        r"\begin{tabular}{lrrr}",
        r"\multicolumn{2}{c}{Image to text}",
        r"\cmidrule(lr){2-3}",
        r"run & R@1 & R@5 & kind \\",
        r"\midrule",
        r"\multicolumn{4}{l}{\textit{Memory\_free}} \\",
        r"{[a] 50\%} & $\mathbf{-51.00} \pm 12.4$ & $+1.5$ & - \\",
        r"b\_c & -- & $100.0$ &  \\",
        r"\bottomrule",
        r"\end{lrbox}",
        r"\resizebox{\linewidth}",
        r"positive = forgetting -{}- see \#2",
    )
    assert [one for one in parts if one not in text] == []
    assert sorted(parts, key=text.index) == [*parts]
    assert r"\addlinespace" not in text
    ordered = replace(_wide(3), is_ordered=True)
    assert table_latex(ordered, "a").count(r"\addlinespace") == 1  # before the second row


def _wide(columns: int, runs: int = 2) -> Table:
    heads = (Column("run", is_number=False), *(Column(f"R@{n}") for n in range(columns)))
    cells = [TableCell("50.00", "1.41", 50.0)] * columns
    rows = tuple((TableCell(f"a run {number}"), *cells) for number in range(runs))
    return Table("wide", heads, (RowGroup("", rows),))


def test_metrics_have_the_names_and_arrows_of_papers() -> None:
    keys = {"i2t_r1": True, "t2i_rmean": True, "rm": True, "fr_dha": False, "drop": None}
    heads = (
        Column("run", is_number=False),
        *(Column(k, higher_is_better=v) for k, v in keys.items()),
    )
    cells = (TableCell("a"), *(TableCell("1.00", value=1.0) for _ in keys))
    notes = ("fr_dha: percent; positive = forgetting",)
    table = Table("Loss in rm", heads, (RowGroup("", (cells,)),), notes)
    text = table_latex(table, "loss")
    up, down = r" $\uparrow$", r" $\downarrow$"
    assert f"run & i2t R@1{up} & t2i R@mean{up} & R@mean{up} & FR{down} & drop " in text
    assert r"\caption{Loss in R@mean}" in text
    assert " FR: percent; positive = forgetting" in text
    published = table_latex(replace(table, is_ordered=True), "loss")
    assert "& fr\\_dha &" in published
    assert "arrow" not in published


def test_no_text_is_a_command() -> None:
    assert latex("\\input{x} $y$ ~^ a--b ``q''") == (
        r"\textbackslash{}input\{x\} \$y\$ \textasciitilde{}\textasciicircum{} a-{}-b `{}`q'{}'"
    )


def _compiled(texts: list[str], place: Path) -> str:
    """The log of pdflatex for a document with these tables; fails if it ends with an error."""
    lines = [
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,graphicx}",
        r"\begin{document}",
        *texts,
        r"\end{document}",
    ]
    (place / "doc.tex").write_text("\n".join(lines), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "doc.tex"]
    done = subprocess.run(command, cwd=place, capture_output=True, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, text[-3000:]
    return text


@pytest.mark.slow
def test_tables_compile(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex")
    name = "".join(chr(code) for code in range(32, 127)) + "[x] *y --- ?` !` ,, << >> \\\\"
    cells = (TableCell(name), *(TableCell(name) for _ in TABLE.columns[1:]))
    odd = Table(name, TABLE.columns, (RowGroup(name, (cells, cells)),), (name,))
    made = [table_latex(one, str(place)) for place, one in enumerate((TABLE, odd, _wide(12)))]
    log = _compiled(made, tmp_path)
    widths = re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", log)
    assert len(widths) < 3  # the name without spaces, in the caption and the note of `odd`
    assert "undefined" not in log.lower().replace("undefined references", "")
    assert (tmp_path / "doc.pdf").stat().st_size > 10_000


GROUPED = Table(
    "title",
    (Column("run", is_number=False), Column("rm", over="Recall"), Column("steps")),
    (
        RowGroup(
            "Memory free", ((TableCell("a, b"), TableCell("50.00", "1.41", 50.0), TableCell("3")),)
        ),
        RowGroup("Buffer", ((TableCell('"c"'), TableCell("-", is_faint=True), TableCell("-")),)),
    ),
)


def _read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_other_tables_have_a_line_per_row() -> None:
    assert _read(table_csv(GROUPED)) == [
        {"group": "Memory free", "run": "a, b", "Recall: rm": "50.0", "Recall: rm sd": "1.41"}
        | {"steps": "3"},
        {"group": "Buffer", "run": '"c"', "Recall: rm": "", "Recall: rm sd": "", "steps": ""},
    ]


@pytest.mark.parametrize(
    "name",
    ["=HYPERLINK(1)", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", " =1", "\uff1d1"],
)
def test_a_name_is_no_formula_of_a_spreadsheet(name: str) -> None:
    columns = (Column(name, is_number=False), Column("drop"), Column("95 % interval"))
    cells = (TableCell(name), TableCell("-1.50", value=-1.5), TableCell("-2.00 to 1.50"))
    text = table_csv(Table("t", columns, (RowGroup(name, (cells,)),)))
    head, (group, run, drop, interval) = csv.reader(io.StringIO(text))
    assert (group, run) == (f"'{name}", f"'{name}")
    assert (drop, interval) == ("-1.5", "-2.00 to 1.50")
    assert head[1] == f"'{name}"


def _table(names: list[str], label: str = "ctp", sd: str = "1.00") -> Table:
    columns = [Column("run", is_number=False), *map(Column, names)]
    cells = (TableCell(label), *(TableCell("50.00", sd) for _ in names))
    return Table("title", tuple(columns), (RowGroup("group", (cells,)),), ("a note",))


def test_columns_are_put_in_blocks_below_their_upper_headings() -> None:
    heads = (Column("run", is_number=False), *(Column(f"r{n}", over="Recall") for n in range(6)))
    table = replace(_table([str(n) for n in range(6)], sd=""), columns=heads)
    lines = styled(table, 24).plain.splitlines()
    found = [" ".join(line.split()) for line in lines if line.startswith(("run", "     -", "a n"))]
    upper = "------ Recall -----"
    assert found == [upper, "run r0 r1 r2", upper, "run r3 r4 r5", "a note"]
    lost = (Column(f"lost-{n}", over="Loss") for n in range(3))
    wide = styled(replace(table, columns=(*heads[:4], *lost))).plain
    assert wide.splitlines()[2] == "     ------ Recall -----  -------- Loss --------"
    narrow = [line for line in styled(table, 6).plain.splitlines() if line.startswith("run")]
    assert [line.split()[1:] for line in narrow] == [[f"r{n}"] for n in range(6)]


def test_no_line_is_wider_than_asked_and_a_long_name_leaves_room_for_numbers() -> None:
    table = _table([f"metric_{i}" for i in range(9)], label="a-long-name-of-a-run")
    for width in range(30, 120, 7):
        text = styled(table, width).plain
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert ("a-long-name-of\u2026  50.00 (1.00)" in text) == (width == 30)


def test_wide_characters_keep_the_columns_aligned() -> None:
    table = _table(["rm"], label="日本", sd="")
    lines = styled(table).plain.splitlines()
    assert len({cell_len(line) for line in lines if "rm" in line or "50.00" in line}) == 1


def test_a_pipe_gets_no_codes(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(["mind this"], [("heading", [_table(["rm"])])])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.startswith("heading\n\ntitle\n")
    assert out.endswith("note: mind this\n\n")


def _zeroshot(**fields: object) -> dict[str, object]:
    metrics = {"acc1": 12.345, "acc5": 50.0, "mean_per_class_recall": 12.0}
    return {
        **row(step=0, task_step=0, metrics=metrics),
        "evaluator": "zeroshot",
        "protocol": "",
        "n_images": 80,
        **fields,
    }


def test_rows_are_grouped_by_checkpoint() -> None:
    table = measured_table(
        [_zeroshot(), _zeroshot(seed=3), _zeroshot(step=None), _zeroshot(alpha=0.5), _zeroshot()]
    )
    assert [(group.name, len(group.rows)) for group in table.groups] == [
        ("ctp, after task 0", 2),
        ("ctp, seed 3, after task 0", 1),
        ("ctp, before any task", 1),
        ("ctp, alpha 0.5, after task 0", 1),
    ]


def test_a_metric_that_a_row_lacks_is_a_dash() -> None:
    merged = {"gallery": "merged", "task": "merged", "tasks": ["00-a", "01-b"]}
    rows = [_zeroshot(), {**_zeroshot(**merged), "metrics": {"acc1": 1.0}}]
    (group,) = measured_table(rows).groups
    assert group.rows[1][0].text == "merged (2 tasks)"
    assert [[cell.text for cell in line[1:]] for line in group.rows] == [
        ["12.35", "50.00", "12.00", "80"],
        ["1.00", "-", "-", "80"],
    ]


def _verdict(run: str = "weekly", value: float | None = 5.0, **fields: Any) -> Verdict:
    usual = Verdict(
        condition="drop:gt:3",
        run=run,
        metric="drop.rm",
        value=value,
        holds=value is not None and value > 3,
        undefined=None if value is not None else "it lacks rows",
        data="coco",
        track="retrieval, cross-modal, test split",
        bound=3.0,
        passes=value is not None and value <= 3,
    )
    return replace(usual, **fields)


FAILS, PASSES = _verdict(), _verdict(value=1.0)
UNDEFINED = _verdict(value=None)
EXCUSED = _verdict(value=None, is_early=True, passes=True, data=None)


@pytest.mark.parametrize("verdict", [FAILS, PASSES, UNDEFINED, EXCUSED])
def test_a_recorded_verdict_makes_the_same_case(verdict: Verdict) -> None:
    recorded = json.loads(json.dumps(verdict.as_json()))
    assert Verdict.read(recorded, "verdict.json") == verdict
    with pytest.raises(BadInput, match=r"verdict\.json: .*holds`"):
        Verdict.read({**recorded, "holds": "no"}, "verdict.json")


def _check(root: ET.Element) -> None:
    """What the schemas that circulate for JUnit files have in common."""
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    cases = list(suite)
    count = {name: len(suite.findall(f"testcase/{name}")) for name in ("failure", "error")}
    for one in (root, suite):
        assert set(one.attrib) == {"name", "tests", "failures", "errors", "skipped", "time"}
        assert int(one.attrib["tests"]) == len(cases)
        assert int(one.attrib["failures"]) == count["failure"]
        assert int(one.attrib["errors"]) == count["error"]
        assert float(one.attrib["time"]) >= 0
    for case in cases:
        assert case.tag == "testcase"
        assert set(case.attrib) == {"name", "classname", "time"}
        (outcome,) = case
        assert outcome.tag in {"failure", "error", "system-out"}
        if outcome.tag != "system-out":
            assert set(outcome.attrib) == {"message", "type"}
        assert outcome.text


def test_every_verdict_is_a_test_case() -> None:
    root = ET.fromstring(junit([FAILS, PASSES, UNDEFINED, EXCUSED]))
    _check(root)
    assert root.attrib["tests"] == "4"
    failing, passing, undefined, excused = root[0]
    assert failing.attrib["classname"] == "vlcpctl.weekly"
    assert failing.attrib["name"] == "drop:gt:3: drop.rm on coco"
    assert failing[0].tag == "failure"
    assert failing[0].attrib["message"] == "weekly: drop.rm on coco = 5.0000 > 3"
    said = "weekly: drop.rm on coco = 1.0000, not > 3"
    assert (passing[0].tag, passing[0].text) == ("system-out", said)
    assert undefined[0].tag == "error"
    assert undefined[0].attrib["message"].endswith("is undefined, it lacks rows")
    assert excused[0].tag == "system-out"
    assert "not defined yet (1 task)" in str(excused[0].text)


def test_the_name_of_a_case_is_unique_and_does_not_change() -> None:
    galleries = [_verdict(data=None, metric=metric) for metric in ("own_final", "merged_final")]
    names = [case.attrib["name"] for case in ET.fromstring(junit(galleries))[0]]
    assert len(set(names)) == 2
    worst = [
        _verdict(condition="worst_drop:gt:3", metric="worst_drop.rm", data=data)
        for data in ("coco", "flickr")
    ]
    names = [case.attrib["name"] for case in ET.fromstring(junit(worst))[0]]
    assert names == ["worst_drop:gt:3"] * 2


@given(name=st.text(st.characters(codec=None), min_size=1))  # lone surrogates, too
def test_the_document_is_valid_for_any_name(name: str) -> None:
    verdict = _verdict(name, data=name, undefined=name, track=name, value=None)
    text = junit([verdict])
    _check(ET.fromstring(text.encode("utf-8")))
    for char in text:
        assert char == "\n" or " " <= char <= "\ud7ff" or char >= "\ue000", ascii(char)
        assert char not in "\ufffe\uffff"


def test_a_file_of_ours_is_replaced_and_a_foreign_one_or_a_report_is_not(tmp_path: Path) -> None:
    out, report = tmp_path / "new" / "gates.xml", tmp_path / "report"
    write_junit([FAILS], out)
    assert is_junit(out)
    write_junit([PASSES], out)
    assert ET.fromstring(out.read_text()).attrib["failures"] == "0"
    assert [path.name for path in out.parent.iterdir()] == ["gates.xml"], "no copy stays"
    for text in ("mine", '<testsuites name="pytest"></testsuites>'):
        out.write_text(text)
        for act in (lambda: check_junit_path(out, None), lambda: write_junit([FAILS], out)):
            with pytest.raises(OutputExists, match="already exists"):
                act()
        assert out.read_text() == text
    for inside in (report, report / "gates.xml", report / "a" / ".." / "b.xml"):
        with pytest.raises(UsageError, match="is inside --out"):
            check_junit_path(inside, report)
    check_junit_path(tmp_path / "report.xml", report)
