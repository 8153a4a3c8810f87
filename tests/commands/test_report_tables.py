"""`forgetting-report --table`, --csv and --latex as users run them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.eval_rows import current, merged_rows, own_rows, write_rows
from support.program import ProgramResult, check_refused, run_program
from support.published import write_table

NAME = "forgetting-report"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Rows of two runs, and a table with one of them."""
    rows = current(own_rows() + merged_rows()) + current(own_rows(run="er"))
    write_rows(tmp_path / "rows", rows)
    lines = [["", "CTP", "ctp", "", "30.00"], ["", "LwF", "lwf", "", "29.00"]]
    write_table(tmp_path / "mine.csv", {"rm": "own_final.rm"}, lines)
    return tmp_path


def _run(capfd: pytest.CaptureFixture[str], place: Path, *words: object) -> ProgramResult:
    return run_program(capfd, NAME, place / "rows", *words)


def test_the_terminal_shows_only_the_chosen_tables(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = _run(capfd, place, "--table", place / "mine.csv")
    assert (ended.code, ended.err) == (0, "")
    assert "CTP  paper   30.00\n     here    37.33\n" in ended.out
    assert "Forgetting in rm" not in ended.out
    gated = _run(capfd, place, "--table", place / "mine.csv", "--fail-if", "rm:lt:0")
    assert "Conditions (--fail-if)" in gated.out


def test_a_report_has_them_first_and_their_cells_as_csv(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = place / "report"
    words = ("--table", place / "mine.csv", "-o", out, "-q")
    assert _run(capfd, place, *words).code == 0
    for name, first, second in (
        ("report.html", "Example, Table 1", "Forgetting in rm"),
        ("report.md", "### Example, Table 1", "### Forgetting in rm"),
    ):
        text = (out / name).read_text()
        assert 0 < text.index(first) < text.index(second)
    cell, absent = csv.DictReader((out / "mine.csv").read_text().splitlines())
    assert (cell["paper"], cell["here"], absent["here"]) == ("30.0", "37.333333", "")
    # The table belongs to the settings of the report: another text makes another report.
    assert _run(capfd, place, *words).code == 0
    edited = (place / "mine.csv").read_text().replace("30.00", "31.00")
    (place / "mine.csv").write_text(edited)
    check_refused(_run(capfd, place, *words), NAME, 4, "was made with other settings", "--force")


def test_without_a_table_a_report_is_what_it_was(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = json.loads(_run(capfd, place, "--json").out)
    assert "tables" not in made["identity"]


@pytest.mark.parametrize(("option", "ending"), [("--csv", ".csv"), ("--latex", ".tex")])
def test_every_table_is_a_file(
    place: Path, capfd: pytest.CaptureFixture[str], option: str, ending: str
) -> None:
    words = ("--table", place / "mine.csv", option, place / "out", "-q")
    ended = _run(capfd, place, *words)
    assert (ended.code, ended.err) == (0, "")
    names = {path.name for path in (place / "out").iterdir()} - {"tables.json"}
    assert names == {
        f"mine{ending}",
        f"retrieval-merged-final{ending}",
        f"retrieval-own-final{ending}",
        f"retrieval-forgetting{ending}",
    }
    before = {path: path.stat().st_mtime_ns for path in (place / "out").iterdir()}
    assert _run(capfd, place, *words).code == 0  # the same again: nothing is written
    assert {path: path.stat().st_mtime_ns for path in (place / "out").iterdir()} == before
    other = _run(capfd, place, option, place / "out", "-q")
    check_refused(other, NAME, 4, "was made with other settings", "--force replaces it")
    assert _run(capfd, place, option, place / "out", "-q", "--force").code == 0
    assert not (place / "out" / f"mine{ending}").exists()


def test_the_caption_says_what_was_evaluated(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _run(capfd, place, "--latex", place / "out", "-q")
    (path,) = (place / "out").glob("*forgetting*")
    caption = "{Forgetting in R@mean, own galleries (retrieval, cross-modal, test split)}"
    assert caption in path.read_text(encoding="utf-8")


def test_a_foreign_directory_is_not_replaced(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "mine").mkdir()
    (place / "mine" / "thesis.tex").write_text("x")
    ended = _run(capfd, place, "--latex", place / "mine", "-q", "--force")
    check_refused(ended, NAME, 4, f"{place / 'mine'} already exists")


def test_csv_files_are_read_as_csv(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _run(capfd, place, "--csv", place / "out", "-q")
    with next((place / "out").glob("*forgetting*")).open(newline="") as file:
        found = {one["run"]: float(one["BWT"]) for one in csv.DictReader(file)}
    assert found == {"ctp": -9.0, "er": -9.0}


def test_options_that_contradict_each_other_are_refused(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, inside = place / "out", place / "out" / "inside"
    for words, code, *fragments in (
        (["--table", "ctp-99"], 2, "--table: unknown table 'ctp-99'", "ends in .csv"),
        (["--table", place / "no.csv"], 3, "cannot read", "No such file or directory"),
        (["--csv", out, "--latex", out], 2, "is in", "choose separate directories"),
        (["-o", out, "--csv", inside], 2, f"--csv {inside} is in --out {out}"),
        (["--csv", out, "--junit", out / "j.xml"], 2, "--junit"),
        (["--csv", place, "--table", place / "mine.csv"], 2, f"{place} is or contains the input"),
        (["--table", "s3://bucket/x.csv"], 2, "is a URL"),
        (["--csv", "-"], 2, "- is stdout"),
        (
            ["--latex", "t.tex"],
            2,
            "--latex t.tex is the name of a file: give a directory, such as t,",
        ),
        (["--figures", "fig.pdf"], 2, "fig.pdf is the name of a file"),
    ):
        check_refused(_run(capfd, place, *words), NAME, code, *fragments)
        assert not out.exists()
