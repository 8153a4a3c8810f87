"""recipes/tic.sh: the lines of TiC-CLIP's protocols, what they replay, and its three numbers."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.recipe_lines import RECIPES, dry_run_of, options_of_command, script, train_request

from vlcpctl.data.tasks.task import open_task
from vlcpctl.jobs.script import parse
from vlcpctl.testing.tiny_stream import make_stream

PROTOCOLS = ("sequential", "patching", "all", "exp", "equal")
STEPS = ("00-time", "01-time", "02-time", "03-time")
table = script("tic_table")


def _runs() -> dict[str, list[dict[str, Any]]]:
    """The options of every training of each protocol, in order."""
    steps = options_of_command(dry_run_of("tic.sh"), "train-step")
    return {
        one: [step for step in steps if str(step["out"]).startswith(f"seed0/{one}/")]
        for one in PROTOCOLS
    }


def _dry_run(*words: str, **environment: str) -> str:
    command = ["bash", str(RECIPES / "tic.sh"), "--dry-run", *words]
    given = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=given).stdout


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_step_of_time_is_trained_once_for_as_long_and_warm_up_is_for_the_first(
    protocol: str,
) -> None:
    found = _runs()[protocol]
    assert [Path(str(step["tasks"][0])).name for step in found] == [*STEPS]
    assert {(step["steps"], step["batch_size"], step["method"]) for step in found} == {
        (8, 32, "seqf")
    }
    assert [step["warmup"] for step in found] == [0.1, 0, 0, 0]
    assert [step["buffer"] is None for step in found] == (
        4 * [True] if protocol in ("sequential", "patching") else [True, False, False, False]
    )


def test_patching_goes_on_from_the_merged_model_and_the_others_from_the_last() -> None:
    for protocol, found in _runs().items():
        before = [None, *(f"seed0/{protocol}/{step}" for step in STEPS[:-1])]
        assert [step["previous"] and str(step["previous"]) for step in found] == before
    merges = options_of_command(dry_run_of("tic.sh"), "merge")
    assert [str(one["out"]) for one in merges] == [f"seed0/patching/{step}" for step in STEPS[1:]]
    for number, one in enumerate(merges, start=1):
        old, new = STEPS[number - 1 : number + 1]
        pair = [f"seed0/patching/{old}", f"seed0/patching/learned-{new}"]
        assert [str(path) for path in one["models"]] == pair
        assert list(one["weights"]) == ["0.5,0.5"]


def test_every_model_is_measured_in_all_times() -> None:
    measured = options_of_command(dry_run_of("tic.sh"), "eval-retrieval")
    assert len(measured) == len(PROTOCOLS)
    for protocol, given in zip(PROTOCOLS, measured, strict=True):
        assert [str(task) for task in given["tasks"]] == [f"stream/{step}" for step in STEPS]
        models = [str(path) for path in given["checkpoint"]]
        assert models == [f"seed0/{protocol}/{step}" for step in STEPS]


@pytest.mark.parametrize(
    ("protocol", "kept"),
    [
        pytest.param("all", [[16], [16, 16], [16, 16, 16]], marks=pytest.mark.slow),
        ("exp", [[8], [4, 8], [2, 4, 8]]),
        pytest.param("equal", [[16], [8, 8], [5, 6, 5]], marks=pytest.mark.slow),
    ],
)
def test_buffers_keep_what_the_protocol_says(
    tmp_path: Path, protocol: str, kept: list[list[int]]
) -> None:
    """The lines of buffers on a stream with 16 images for training and 4 for tests in each step."""
    make_stream(tmp_path / "stream", 4, 16)
    names = sorted(path.name for path in (tmp_path / "stream").glob("0*"))
    printed = _dry_run("--protocols", protocol)
    for place, name in zip(STEPS, names, strict=True):
        printed = printed.replace(place, name)
    lines = parse(printed)
    buffers = "".join(f"{shlex.join(one.words)}\n" for one in lines if one.words[0] == "buffer")
    batch = [sys.executable, "-m", "vlcpctl", "batch"]
    subprocess.run(batch, cwd=tmp_path, input=buffers, text=True, check=True, capture_output=True)
    found = []
    for step in options_of_command(lines, "train-step")[1:]:
        keys = open_task(tmp_path / step["buffer"]).split("train").column("source_key")
        found.append([*Counter(sorted(int(key) // 20 for key in keys)).values()])
    if protocol != "exp":  # of which the newest step has the most
        found, kept = [*map(sorted, found)], [*map(sorted, kept)]
    assert found == kept


def test_real_pairs_give_the_lines_of_split_a_start_and_a_budget() -> None:
    words = ("--pairs", "some where/pairs.parquet", "--time", "year", "--tasks", "7")
    more = ("--split", "--split-column split", "--start", "base", "--protocols", "patching equal")
    lines = parse(_dry_run(*words, *more, STEPS="500", SEEDS="0 1", PATCH="0.25"))
    assert shlex.join(lines[0].words) == (
        "split 'some where/pairs.parquet' -o stream --by time:year --tasks 7 --split-column split"
    )
    steps = options_of_command(lines, "train-step")
    assert len(steps) == 2 * 2 * 7
    for step in steps:
        train_request(step)
        assert (step["steps"], step["warmup"], step["preset"]) == (500, 0, "update")
        assert step["previous"] is not None  # the start, and never warmed up
    merges = options_of_command(lines, "merge")
    assert len(merges) == 2 * 7
    assert {tuple(one["weights"]) for one in merges} == {("0.75,0.25",)}
    sizes = {one["size"] for one in options_of_command(lines, "buffer")}
    assert sizes == {"14.2857%"}


def test_the_three_numbers_are_means_of_the_triangles() -> None:
    about = {"run": "exp", "metric": "score", "key": "rm", "gallery": "own"}
    cells = (("0", 40.0), ("0", 10.0), ("1", 30.0), ("1", 60.0))
    *_, line = table.table([about | {"step": step, "value": value} for step, value in cells])
    assert line == "| `exp` | 50.0 | 30.0 | 10.0 | 45.0 |"


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_the_recipe_runs_and_prints_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPS", "2")
    command = ["bash", str(RECIPES / "tic.sh"), "--out", "out", "--tasks", "3", "--jobs", "2"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = (tmp_path / "out" / "table.md").read_text()
    assert lines in ended.stdout
    assert {line.split("`")[1] for line in lines.splitlines()[2:]} == {*PROTOCOLS}
