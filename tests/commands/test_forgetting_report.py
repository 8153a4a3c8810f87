"""The command as users run it: what goes where, and with which exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.eval_rows import current, merged_rows, own_rows, row, write_rows
from support.program import check_refused, run_program
from support.run_checkpoints import write_run

from vlcpctl.report.report import read_facts

COMMAND = [sys.executable, "-m", "vlcpctl", "forgetting-report"]


def _run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], input=stdin, capture_output=True, text=True, check=False
    )


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write_rows(tmp_path / "rows.ndjson", own_rows() + merged_rows())


def test_tables_go_to_stdout(rows: str) -> None:
    done = _run(rows)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Forgetting in rm, own galleries" in done.stdout
    assert "\x1b" not in done.stdout


def test_rows_come_from_stdin(rows: str) -> None:
    assert _run("-", stdin=Path(rows).read_text()).stdout == _run(rows).stdout


def test_the_path_of_the_report_is_the_last_line(rows: str, tmp_path: Path) -> None:
    out = tmp_path / "report"
    assert _run(rows, "-o", str(out)).stdout.splitlines()[-1] == str(out)
    assert _run(rows, "-o", str(out), "--quiet").stdout == f"{out}\n"
    names = {path.name for path in out.iterdir()}
    assert names == {"report.html", "report.md", "facts.csv", "summary.json"}


def test_json_is_one_object_on_one_line(rows: str) -> None:
    done = _run(rows, "--json")
    assert json.loads(done.stdout)["schema"] == "vlcpctl.report/2"
    assert done.stdout.count("\n") == 1


def test_a_gate_that_holds_exits_with_7_after_the_report(rows: str, tmp_path: Path) -> None:
    out = tmp_path / "report"
    done = _run(rows, "-o", str(out), "--fail-if", "bwt_gem:lt:-5", "--fail-if", "rm:lt:0")
    assert done.returncode == 7
    assert "ctp: bwt_gem.rm = -9.0000 < -5" in done.stderr
    assert "rm:lt:0" in done.stdout
    assert (out / "report.html").exists()


def test_a_gate_that_does_not_hold_exits_with_0(rows: str) -> None:
    assert _run(rows, "--fail-if", "bwt_gem:lt:-10").returncode == 0


def test_verdicts_are_printed_for_every_gate(rows: str) -> None:
    done = _run(rows, "--fail-if", "bwt_gem:lt:-10", "--fail-if", "rm:lt:1")
    assert (done.returncode, done.stderr) == (0, "")
    table = done.stdout.split("Conditions (--fail-if)")[1]
    assert [line.split()[-1] for line in table.splitlines() if ":lt:" in line] == ["passes"] * 2
    for words in ("-9.0000", "< -10", "35.0000", "< 1"):
        assert words in table


def test_a_quiet_gate_still_says_why_it_fails(rows: str) -> None:
    done = _run(rows, "-q", "--fail-if", "bwt_gem:lt:-5")
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.startswith("vlcpctl forgetting-report: --fail-if holds: ctp: bwt_gem.rm")
    assert done.stderr.count("\n") == 1


def test_in_the_first_week_forgetting_is_not_defined_yet(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "r", own_rows()[:1])
    refused = _run(rows, "--fail-if", "bwt_gem:lt:-5")
    assert refused.returncode == 3
    assert "--undefined pass" in refused.stderr
    done = _run(rows, "--fail-if", "bwt_gem:lt:-5", "--undefined", "pass")
    assert (done.returncode, done.stderr) == (0, "")
    assert "not defined yet (1 task)" in done.stdout
    failed = _run(rows, "--fail-if", "bwt_gem:lt:-5", "--fail-if", "rm:gt:1", "--undefined", "pass")
    assert failed.returncode == 7


@pytest.mark.parametrize(
    ("condition", "code"), [("bwt_gem:lt:-10", 0), ("bwt_gem:lt:-5", 7), ("fwt_gem:lt:1", 3)]
)
def test_junit_and_step_summary_are_written_whatever_the_verdict(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, code: int
) -> None:
    junit, summary = tmp_path / "gates.xml", tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        done = _run(rows, "-q", "--fail-if", condition, "--junit", str(junit))
        assert done.returncode == code
    (case,) = ET.parse(junit).iter("testcase")
    assert case[0].tag == {0: "system-out", 7: "failure", 3: "error"}[code]
    assert summary.read_text().count("## Forgetting report") == 2


def test_a_foreign_junit_file_is_refused_before_anything_is_written(
    rows: str, tmp_path: Path
) -> None:
    junit, out = tmp_path / "gates.xml", tmp_path / "report"
    junit.write_text("mine")
    done = _run(rows, "-o", str(out), "--fail-if", "rm:lt:1", "--junit", str(junit))
    assert (done.returncode, done.stdout) == (4, "")
    assert not out.exists()
    inside = _run(rows, "-o", str(out), "--junit", str(out / "gates.xml"))
    assert inside.returncode == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--fail-if", "bwt_gm:lt:1"], 2),
        (["--fail-if", "rm@dta=x:lt:1"], 2),
        (["--fail-if", "rm@run=x:lt:1"], 3),
        (["--undefined", "ignore"], 2),
        (["--junit", "-"], 2),
        (["--metric", "top5"], 2),
        (["--gallery", "mine"], 2),
        (["--run", "nobody"], 2),
        (["--fail-if", "fwt_gem:lt:1"], 3),
    ],
)
def test_what_cannot_be_answered_has_its_code(rows: str, words: list[str], code: int) -> None:
    done = _run(rows, *words)
    assert done.returncode == code
    assert done.stderr.startswith("vlcpctl forgetting-report: ")


@pytest.fixture
def weeks(tmp_path: Path) -> str:
    """Rows of a run on its tasks and a guard, and of the imported model that it starts from."""
    about = {"run": "production", "method": "imported", "checkpoint": "abcdef0", "step": None}
    outside = [row(task_step=None, step=step, metrics={"rm": 60.0 - step}) for step in range(3)]
    trained = [*own_rows(), *merged_rows(), *outside]
    found = [
        one | {"metrics": {"rm": one["metrics"]["rm"]}} for one in current(trained, start="abcdef0")
    ]
    start = current([row(task_step=None, metrics={"rm": 80.0})])[0] | about | {"config": None}
    return write_rows(tmp_path / "weeks.ndjson", [*found, start])


def test_guards_are_compared_with_the_model_that_the_run_started_from(weeks: str) -> None:
    done = _run(weeks)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Guards: rm on data outside the stream" in done.stdout
    assert "every metric" not in done.stdout
    assert re.search(r"ctp +80.00 +60.00 +59.00 +58.00 +22.00", done.stdout)


def test_guards_are_in_every_file_of_a_report(weeks: str, tmp_path: Path) -> None:
    out = tmp_path / "report"
    assert _run(weeks, "-o", str(out), "-q").returncode == 0
    for name in ("report.md", "report.html"):
        assert "Guards: every metric" in (out / name).read_text()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["baseline"] == {"given": None, "runs": {"ctp": ["production"]}}
    assert summary["guards"] == ["coco"]
    facts = read_facts((out / "facts.csv").read_text())
    (guard,) = [one for one in facts if (one["metric"], one["gallery"]) == ("drop", "outside")]
    assert (guard["data"], guard["key"], guard["value"]) == ("coco", "rm", 22)


def test_a_report_with_another_baseline_is_another_report(weeks: str, tmp_path: Path) -> None:
    words = (weeks, "-o", str(tmp_path / "report"), "-q")
    assert _run(*words).returncode == 0
    done = _run(*words, "--baseline", "abcdef")
    assert done.returncode == 4
    assert "baseline" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--baseline", "nobody"), 2, "--baseline: unknown run 'nobody'"),
        (("--baseline", "."), 3, "checkpoint.json"),
        (("--guard", "flickr*"), 2, "(known: coco)"),
        (("--ranks", "nowhere.parquet"), 3, "cannot read nowhere.parquet"),
        (("--ranks", __file__), 3, "is not a file of ranks"),
    ],
)
def test_options_about_guards_are_refused_in_one_line(
    weeks: str, words: tuple[str, str], code: int, said: str
) -> None:
    done = _run(weeks, *words)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("vlcpctl forgetting-report: ")
    assert said in line


def test_bad_rows_exit_with_3_and_their_place(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows", [row(), row(schema="vlcpctl.eval/2")])
    done = _run(path)
    assert done.returncode == 3
    assert f"{path}:2" in done.stderr


def test_one_gallery_and_one_run_are_shown_when_asked(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "r", own_rows() + merged_rows() + own_rows(run="other"))
    text = _run(path, "--gallery", "own", "--run", "ctp").stdout
    assert "merged" not in text
    assert "other" not in text


def test_the_report_imports_no_torch(rows: str) -> None:
    code = (
        "import sys; from vlcpctl.commands.forgetting_report import ForgettingReport; "
        f"ForgettingReport([{rows!r}], quiet=True).execute(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# They need the model at the start, or data outside the stream.


def test_two_protocols_are_two_sections_with_their_own_metrics(rows: str, tmp_path: Path) -> None:
    other = [
        one | {"protocol": "multi-modal", "metrics": {"map_1": rm, "map_5": rm + 1, "map_10": rm}}
        for one in own_rows() + merged_rows()
        for rm in [one["metrics"]["rm"] / 2]
    ]
    fused = write_rows(tmp_path / "fused.ndjson", other)
    done = _run(rows, fused)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split("retrieval, multi-modal, test split")
    assert "Forgetting in rm, own galleries" in first
    assert "map_" not in first
    assert "Forgetting in map_1, own galleries" in second
    assert "t2i_r1" not in second
    chosen = _run(rows, fused, "--metric", "map_5").stdout
    assert "Forgetting in map_5, own galleries" in chosen
    assert "Forgetting in rm, own galleries" in chosen
    facts = json.loads(_run(rows, fused, "--json").stdout)["facts"]
    found = [one for one in facts if one["protocol"] == "multi-modal"]
    assert {one["key"] for one in found} == {"map_1", "map_5", "map_10"}
    (lost,) = [one for one in found if (one["metric"], one["key"]) == ("bwt_gem", "map_1")]
    assert lost["value"] == -4.5
    assert _run(rows, fused, "--fail-if", "bwt_gem.map_5:lt:-4").returncode == 7


def test_checkpoints_of_the_runs_add_their_cost(rows: str, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "ctp")
    done = _run(rows, "--checkpoint", str(tmp_path / "runs"), "-o", str(tmp_path / "report"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Cost of the training" in done.stdout
    assert "ctp      3    12.00    960" in done.stdout
    assert "loss over the steps" in (tmp_path / "report/report.html").read_text()


def test_a_place_without_checkpoints_is_refused(rows: str, tmp_path: Path) -> None:
    done = _run(rows, "--checkpoint", str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert "has no checkpoint in it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_stands_for_the_files_of_rows_below_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs/.old").mkdir(parents=True)
    (tmp_path / "runs/events.ndjson").write_text('{"schema": "other/1"}\n')
    refused = run_program(capfd, "forgetting-report", tmp_path / "runs")
    check_refused(refused, "forgetting-report", 3, "has no files of evaluation rows")
    rows = own_rows()
    write_rows(tmp_path / "runs/a.ndjson", rows[:3])
    write_rows(tmp_path / "runs/b.ndjson", rows[3:])
    write_rows(tmp_path / "runs/.old/c.ndjson", own_rows(run="other"))
    found = run_program(capfd, "forgetting-report", tmp_path / "runs", "--json")
    assert (found.code, json.loads(found.out)["content"]) == (0, json.loads(
        run_program(capfd, "forgetting-report", write_rows(tmp_path / "all", rows), "--json").out
    )["content"])  # fmt: skip
