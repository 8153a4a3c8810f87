"""What a dry run says of the week that it would make: it is what the week then has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pair_files import write_parquet
from support.production import PASSES, first_words, tree, week_words, write_week
from support.program import ProgramResult, check_refused

import vlcpctl.production.forecast as module
from vlcpctl.data.tasks.facts import read_stream

Run = Callable[..., ProgramResult]


def said_in(printed: str) -> dict[str, str]:
    """The comments of the forecast by their first word."""
    comments = (line[2:].partition(": ") for line in printed.splitlines() if line[:2] == "# ")
    return {name: text for name, colon, text in comments if colon}


def test_pairs_and_steps_are_those_of_the_week(
    run: Run, place: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*week_words(place, state, 2), *PASSES, "--epochs", "2", "--holdout", "test=3", "-q"]
    before = tree(state)
    monkeypatch.setattr(module, "_SLOW_S", 0.0)
    dry = run(*words, "--dry-run")
    assert tree(state) == before
    said = said_in(dry.out)
    assert said["overlaps"] == "no pair is known from an accepted week, or was deleted"
    assert said["leaks"] == "no training pair of the week has a test image"
    assert said["disk"].startswith("about ")
    assert "are free" in said["disk"]
    assert "as in week 1; train-step, by its steps, " in said["time"]
    assert "# for this, the bytes of all images were read once, in " in dry.out
    assert run(*words).code == 0
    week = state / "weeks/0002"
    counts = {name: one.images for name, one in read_stream(week / "stream").totals.items()}
    held_out = f"{counts['test']} held out; no image was decoded"
    assert said["pairs"] == f"{counts['train']} to train on, {held_out}"
    trained = json.loads((week / "checkpoint/checkpoint.json").read_text())["pairs"]
    assert said["steps"] == f"{trained // 4} of 4 pairs"


@pytest.mark.parametrize("replay", [(), ("--replay", "share=0.5")])
@pytest.mark.parametrize("more", [(), ("--batch-size", "8"), ("--preset", "update")])
def test_steps_are_those_that_train_step_plans(
    run: Run, place: Path, state: Path, replay: tuple[str, ...], more: tuple[str, ...]
) -> None:
    words = [*week_words(place, state, 2), "--epochs", "3", *replay, *more, "--dry-run"]
    done = run(*words)
    lines = [one.split()[1:] for one in done.out.splitlines() if one.startswith("vlcpctl ")]
    (split,) = [one for one in lines if one[0] == "split"]
    (training,) = [one for one in lines if one[0] == "train-step"]
    assert run(*split).code == 0
    planned = run(*(one for one in training if one != "-q"), "--dry-run").err
    steps, batch = said_in(done.out)["steps"].removesuffix(" pairs").split(" of ")
    assert f"train: {steps} steps of {batch} pairs" in planned


def test_known_pairs_are_counted(run: Run, place: Path, state: Path) -> None:
    both = [place / "week-1.parquet", place / "week-2.parquet", "--state", state, "--dry-run"]
    overlaps = said_in(run("update", *both).out)["overlaps"]
    assert overlaps == "of 48 pairs, 24 are known from week 1 and left out"
    again = said_in(run("update", *both, "--known", "train").out)
    assert again["overlaps"] == "of 48 pairs, 24 are known from week 1 and trained on again"


def test_the_first_week_and_data_that_cannot_be_split(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    words = first_words(place, tmp_path / "new")
    at = words.index("--steps")
    dry = run(*words[:at], *words[at + 2 :], "--epochs", "1", "--dry-run").out
    said = said_in(dry)
    assert "\n# not compared with test images: --buffer-from" in dry
    assert said["steps"].startswith("at most ")
    assert "time" not in said
    assert "kB" in said["disk"]
    assert not (tmp_path / "new").exists()
    write_week(tmp_path / "few.parquet", 7, count=3)
    few = ["update", tmp_path / "few.parquet", "--state", state, "--replay", "share=0.5"]
    assert "steps" in said_in(run(*few, "--dry-run").out)
    write_parquet(tmp_path / "bad.parquet", [{"image": b"no image", "caption": ["a dog"]}])
    bad = run("update", tmp_path / "bad.parquet", "--state", state, "--dry-run")
    check_refused(bad, "update", 6, "1 of 1 samples cannot be used")
