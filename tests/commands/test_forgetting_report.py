"""`vlcpctl forgetting-report` as users run it: what goes where, and with which exit code."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.eval_rows import current, merged_rows, own_rows, write_rows
from support.program import ProgramResult, check_refused, run_program
from support.published import write_table

NAME = "forgetting-report"
Run = Callable[..., ProgramResult]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Rows of two runs in `both`, of one in `rows`, and a table with that one."""
    own = current(own_rows() + merged_rows())
    write_rows(tmp_path / "rows", own)
    write_rows(tmp_path / "both", own + current(own_rows(run="er")))
    lines = [["", "CTP", "ctp", "", "30.00"], ["", "LwF", "lwf", "", "29.00"]]
    write_table(tmp_path / "mine.csv", {"rm": "own_final.rm"}, lines)
    return tmp_path


@pytest.fixture
def run(place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(place)
    return lambda words: run_program(capfd, NAME, *words.split())


def test_tables_and_json_go_to_stdout_and_rows_may_come_from_stdin(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run("rows")
    assert (shown.code, shown.err) == (0, "")
    assert "Forgetting in rm, own galleries" in shown.out
    assert "\x1b" not in shown.out
    piped = io.TextIOWrapper(io.BytesIO((place / "rows").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert run("-").out == shown.out
    (line,) = run("rows --json").out.splitlines()
    made = json.loads(line)
    assert (made["schema"], "tables" in made["identity"]) == ("vlcpctl.report/2", False)


def test_the_path_of_the_report_is_the_last_line(run: Run, place: Path) -> None:
    assert run("rows -o report").out.splitlines()[-1] == "report"
    assert run("rows -o report --quiet").out == "report\n"
    names = {path.name for path in (place / "report").iterdir()}
    assert names == {"report.html", "report.md", "facts.csv", "summary.json"}


@pytest.mark.parametrize(
    ("conditions", "code", "tag"),
    [
        ("--fail-if bwt_gem:lt:-10", 0, "system-out"),
        ("--fail-if bwt_gem:lt:-5", 7, "failure"),
        ("--fail-if fwt_gem:lt:1", 3, "error"),
    ],
)
def test_a_gate_has_its_code_and_its_files_whatever_the_verdict(
    run: Run,
    place: Path,
    conditions: str,
    code: int,
    tag: str,
) -> None:
    for _ in range(2):
        done = run(f"rows {conditions} --fail-if rm:lt:1 -q --junit gates.xml -o report")
        assert done.code == code
    first, second = ET.parse(place / "gates.xml").iter("testcase")
    assert (first[0].tag, second[0].tag) == (tag, "system-out")
    assert (place / "report/report.html").exists()
    if code == 7:
        (line,) = done.err.splitlines()
        assert "ctp: bwt_gem.rm = -9.0000 < -5" in line


def test_in_the_first_week_forgetting_is_not_defined_yet(run: Run, place: Path) -> None:
    write_rows(place / "first", own_rows()[:1])
    words = "first --fail-if bwt_gem:lt:-5"
    assert run(words).code == 3
    done = run(f"{words} --undefined pass")
    assert (done.code, done.err) == (0, "")
    assert "not defined yet (1 task)" in done.out
    assert run(f"{words} --fail-if rm:gt:1 --undefined pass").code == 7


def test_one_run_is_shown_when_asked(run: Run) -> None:
    assert "er  " in run("both").out
    assert "er  " not in run("both --run ctp").out


def test_a_directory_stands_for_the_files_of_rows_below_it(run: Run, place: Path) -> None:
    (place / "runs/.old").mkdir(parents=True)
    (place / "runs/events.ndjson").write_text('{"schema": "other/1"}\n')
    check_refused(run("runs"), NAME, 3, "no files of evaluation rows")
    rows = own_rows()
    write_rows(place / "runs/a.ndjson", rows[:3])
    write_rows(place / "runs/b.ndjson", rows[3:])
    write_rows(place / "runs/.old/c.ndjson", own_rows(run="other"))
    write_rows(place / "all", rows)
    contents = [json.loads(run(f"{one} --json").out)["content"] for one in ("runs", "all")]
    assert contents[0] == contents[1]


def test_the_terminal_shows_only_the_chosen_tables(run: Run) -> None:
    ended = run("both --table mine.csv")
    assert (ended.code, ended.err) == (0, "")
    assert "CTP  paper   30.00\n     here    37.33\n" in ended.out
    assert "Forgetting in rm" not in ended.out
    assert "Conditions (--fail-if)" in run("both --table mine.csv --fail-if rm:lt:0").out


def test_a_report_has_them_first_and_their_cells_as_csv(run: Run, place: Path) -> None:
    assert run("both --table mine.csv -o report -q").code == 0
    for name in ("report.html", "report.md"):
        text = (place / "report" / name).read_text()
        assert 0 < text.index("Example, Table 1") < text.index("Forgetting in rm")
    cell, absent = csv.DictReader((place / "report/mine.csv").read_text().splitlines())
    assert (cell["paper"], cell["here"], absent["here"]) == ("30.0", "37.333333", "")
    # The table belongs to the settings of the report: another text makes another report.
    table = place / "mine.csv"
    table.write_text(table.read_text().replace("30.00", "31.00"))
    check_refused(run("both --table mine.csv -o report -q"), NAME, 4, "--force")


@pytest.mark.parametrize(("option", "ending"), [("--csv", ".csv"), ("--latex", ".tex")])
def test_every_table_is_a_file(run: Run, place: Path, option: str, ending: str) -> None:
    ended = run(f"both --table mine.csv {option} out -q")
    assert (ended.code, ended.err) == (0, "")
    names = {path.name for path in (place / "out").iterdir()} - {"tables.json"}
    tables = ("merged-final", "own-final", "forgetting")
    assert names == {f"mine{ending}", *(f"retrieval-{one}{ending}" for one in tables)}
    assert run(f"both {option} out -q --force").code == 0
    assert not (place / "out" / f"mine{ending}").exists()
    text = (place / "out" / f"retrieval-forgetting{ending}").read_text(encoding="utf-8")
    if option == "--csv":
        found = {one["run"]: float(one["BWT"]) for one in csv.DictReader(text.splitlines())}
        assert found == {"ctp": -9.0, "er": -9.0}
    else:
        caption = "Forgetting in R@mean, own galleries (retrieval, cross-modal, test split)"
        assert f"{{{caption}}}" in text
