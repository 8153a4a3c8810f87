"""recipes/leaderboard.sh: its rows, how it chooses settings, and what its table shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from support.collected import scores_of, write_facts
from support.eval_rows import row
from support.recipe_lines import RECIPES, dry_run_of, options_of, options_of_command, script

from vlcpctl.methods import TABLE
from vlcpctl.training.methods import compose

CHOOSE = RECIPES / "leaderboard_choose.py"
BOARDS = ("memory-free", "buffered", "ablations")


def stage_of(path: object) -> str:
    return str(path).split("/")[0]


def test_the_leaderboard_has_the_methods_of_its_page() -> None:
    """A new method gets a row when it has been measured; until then its own page says so."""
    lines = options_of_command(dry_run_of("leaderboard.sh"), "train-step")
    steps = [given for given in lines if stage_of(given["out"]) in BOARDS]
    page = (RECIPES.parent / "docs" / "results" / "leaderboard.md").read_text(encoding="utf-8")
    measured = {name for name in TABLE if f"\n| `{name}` |" in page}
    assert len(measured) >= 20
    assert {given["method"] for given in steps} == {*measured, "ctp+er"}
    buffered = {given["method"] for given in steps if stage_of(given["out"]) == "buffered"}
    needs = {name: TABLE[name]().needs(first=False) for name in measured}
    assert buffered == {
        "ctp+er",
        *(name for name, need in needs.items() if need.buffer or need.reference),
    }
    assert {given["set"][0] for given in steps if given["run"] == "lwf-channels"} == {
        "lwf.target=channels"
    }


def test_the_choice_reads_the_validation_split_of_the_first_groups_alone() -> None:
    lines = dry_run_of("leaderboard.sh")
    evaluated = options_of_command(lines, "eval-retrieval")
    splits = defaultdict(set)
    tasks = defaultdict(set)
    for given in evaluated:
        stage = "choice" if stage_of(given["out"]) == "selection" else "board"
        splits[stage].add(given["split"])
        tasks[stage] |= {str(task) for task in given["tasks"]}
    assert splits == {"choice": {"val"}, "board": {None}}  # None: test
    assert {stage_of(task) for task in tasks["choice"]} == {"first"}
    assert {stage_of(task) for task in tasks["board"]} == {"rest"}
    groups = [set(given["groups"].split(",")) for given in options_of_command(lines, "sample")]
    assert [len(one) for one in groups] == [3, 6]
    assert groups[0].isdisjoint(groups[1])


def test_every_row_has_two_rates_and_every_strength_three_values() -> None:
    tried = defaultdict(set)
    for given in options_of_command(dry_run_of("leaderboard.sh"), "eval-retrieval"):
        if stage_of(given["out"]) == "selection":
            _, name, rate, setting = str(given["out"]).split("/")
            tried[name].add((rate, setting))
    plain = {"joint", "seqf", "er", "mof"}
    assert {name: len(found) for name, found in tried.items()} == {
        name: 2 if name in plain else 4 for name in tried
    }


def test_ablations_are_made_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATIONS", "ctp-all-default incclip-256-no-texts")
    lines = dry_run_of("leaderboard.sh", "--methods", "ctp incclip seqf")
    made = {
        given["run"]: given
        for given in options_of_command(lines, "train-step")
        if stage_of(given["out"]) == "ablations"
    }
    assert set(made) == {"ctp-all-default", "incclip-256-no-texts"}
    assert made["ctp-all-default"]["set"] == ["ctp.queue=1024"]
    assert made["ctp-all-default"]["negatives"] == "all"
    assert made["incclip-256-no-texts"]["batch_size"] == 256
    assert "incclip.count=0" in made["incclip-256-no-texts"]["set"]


def test_every_ablation_is_a_line_that_the_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATIONS", "1")
    monkeypatch.setenv("SEEDS", "0")
    lines = dry_run_of("leaderboard.sh", "--methods", "lwf er ctp ctp+er co2l ema incclip der")
    found = [line for line in lines if "ablations" in str(line)]
    assert found
    assert all(options_of(line) for line in found)
    given_temperature = set()
    for given in options_of_command(found, "train-step"):
        assert compose(given["method"], given["set"] or [])
        # train-step refuses a temperature for a model that has one.
        assert not (given["temperature"] and given["previous"])
        if given["temperature"]:
            given_temperature.add((given["run"], given["temperature"]))
    assert given_temperature == {
        ("incclip-learned", "learn:0.07"),
        ("incclip-learned-no-texts", "learn:0.07"),
        ("incclip-learned-0.07", "learn:0.07"),
        ("incclip-learned-0.07-no-texts", "learn:0.07"),
        ("incclip-0.02", "fixed:0.02"),
        ("incclip-0.02-no-texts", "fixed:0.02"),
    }


def choose(tmp_path: Path, rows: list[dict[str, object]]) -> subprocess.CompletedProcess[str]:
    rows_file = tmp_path / "rows.ndjson"
    rows_file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    command = [sys.executable, CHOOSE, rows_file, "-o", tmp_path / "chosen.tsv"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tried(run: str, rm: float, **fields: object) -> dict[str, object]:
    """The row of the last of three models on the gallery of all three tasks."""
    usual = {"gallery": "merged", "split": "val", "step": 2, "task_step": 2}
    return row(**usual | {"run": run, "metrics": {"rm": rm}} | fields)


def test_the_best_setting_of_each_row_is_chosen(tmp_path: Path) -> None:
    ended = choose(
        tmp_path,
        [
            tried("ewc:1e-3:ewc.strength=5", 2.0),
            tried("ewc:3e-3:ewc.strength=5", 3.0),
            tried("ewc:1e-3:ewc.strength=9", 9.0, task_step=0),  # a gallery of the first task
            tried("ewc:1e-3:ewc.strength=9", 1.0),
            tried("ewc:1e-3:ewc.strength=9", 9.5, gallery="own"),
            tried("seqf:1e-3:", 1.5),
            tried("seqf:3e-3:", 1.5),  # equal: the first one is chosen
        ],
    )
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "read 7 rows of 1 files, all of split val" in ended.stderr
    lines = [line.split("\t") for line in (tmp_path / "chosen.tsv").read_text().splitlines()]
    assert [line[:4] for line in lines] == [
        ["ewc", "3e-3", "ewc.strength=5", "3.00"],
        ["seqf", "1e-3", "", "1.50"],
    ]
    assert lines[0][4].startswith("3.00 (3e-3 ewc.strength=5), 2.00 (1e-3 ewc.strength=5), 1.00")


def test_of_several_seeds_the_mean_decides(tmp_path: Path) -> None:
    scores = {"a:1:x=1": (1.5, 3.5), "a:1:x=2": (2.0, 2.5)}
    rows = [tried(run, rm, seed=seed) for run, of in scores.items() for seed, rm in enumerate(of)]
    assert choose(tmp_path, rows).returncode == 0
    assert (tmp_path / "chosen.tsv").read_text() == (
        "a\t1\tx=1\t2.50\t2.50 (1 x=1: 1.50, 3.50), 2.25 (1 x=2: 2.00, 2.50)\n"
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([tried("a:1:", 2.0), tried("b:1:", 1.0, split="test")], "line 2: a row of split 'test'"),
        ([tried("a:1:", 2.0), tried("a:1:", 2.5)], "run 'a:1:' has more than one model of seed 0"),
        ([tried("a:1:", 2.0), tried("a:1:x=1", 2.5, seed=1)], "run 'a:1:x=1' has other seeds than"),
    ],
)
def test_rows_that_must_not_be_chosen_from_are_refused(
    tmp_path: Path, rows: list[dict[str, object]], message: str
) -> None:
    ended = choose(tmp_path, rows)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "chosen.tsv").exists()


def test_a_dry_run_uses_what_was_chosen(tmp_path: Path) -> None:
    (tmp_path / "chosen.tsv").write_text("mas\t3e-4\tmas.strength=0.1\t1.00\t1.00 (...)\n")
    lines = dry_run_of("leaderboard.sh", "--methods", "mas", "--out", str(tmp_path))
    board = [
        given
        for given in options_of_command(lines, "train-step")
        if stage_of(given["out"]) == "memory-free"
    ]
    assert {(given["lr"], *given["set"]) for given in board} == {(3e-4, "mas.strength=0.1")}
    assert len(board) == 18


def test_the_table_has_settings_and_scores_of_each_run(tmp_path: Path) -> None:
    averaged = "interpolate alpha=0.5"
    write_facts(
        tmp_path / "memory-free/facts.csv",
        [
            {"run": "seqf", "metric": "merged_final", **scores_of(0.5, 1.5)},
            {"run": averaged, "metric": "merged_final", **scores_of(2.0, 3.0)},
            {"run": averaged, "metric": "own_final", **scores_of(4.0, 5.0)},
            {"run": averaged, "metric": "own_learned", "key": "rm"},
        ],
    )
    table = script("leaderboard_table")
    found = table.table(
        table.read_runs(tmp_path / "memory-free"), {"interpolate": ["1e-3", "alpha=0.5", "2", ""]}
    )
    assert found[2] == (
        "| `interpolate` | 1e-3, alpha=0.5 | 2.50 (0.71) | 2.00, 3.00 | - | 4.50 (0.71) | - |"
    )
    assert found[3] == "| `seqf` |  | 1.00 (0.71) | 0.50, 1.50 | - | - | - |"
    assert {line.count("|") for line in found} == {8}


def test_its_page_has_a_table_of_each_report_and_every_setting_that_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("merged_final", "own_learned", "own_final", "forgetting_max")
    facts = [{"run": "er", "metric": name, **scores_of(2.0)} for name in names]
    write_facts(tmp_path / "buffered/facts.csv", facts)
    chosen = tmp_path / "chosen.tsv"
    chosen.write_text("er\t1e-3\ter.share=0.5,er.bound=0\t7.00\t7.00 (1e-3), 6.00 (3e-3)\n")
    script("leaderboard_table").main(tmp_path, chosen)
    rest = ["own `rm`, just learned", "own `rm`, last model", "`forgetting_max`"]
    assert capsys.readouterr().out.splitlines() == [
        "## With a buffer",
        "",
        f"| row | setting | {' | '.join(['merged `rm`, last model', 'seeds 0', *rest])} |",
        "|---|---|---|---|---|---|---|",
        "| `er` | 1e-3, er.share=0.5, er.bound=0 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 |",
        "",
        "## What was tried",
        "",
        "| row | merged `rm` on the validation split, of each setting |",
        "|---|---|",
        "| `er` | 7.00 (1e-3), 6.00 (3e-3) |",
    ]
