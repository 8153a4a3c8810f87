"""`vlcpctl check STATE`: what is wrong with a state is one line with its repair."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import PASSES, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.production.checking import check_state
from vlcpctl.production.layout import Layout

Run = Callable[..., ProgramResult]
REPAIR = "; restore it from a backup"


def problems(state: Path) -> list[str]:
    return list(check_state(state, deep=False))


def test_a_whole_state_has_no_problem(run: Run, state: Path) -> None:
    for more in ([], ["--deep"], ["--strict"]):
        assert run("check", state, *more).code == 0
    assert problems(state) == []


def cut_last_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))


def other_number(path: Path) -> None:
    from vlcpctl.production.attempt import Attempt

    attempt = Attempt.read(path.parent)
    from dataclasses import replace

    replace(attempt, number=7).write(path.parent)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("weeks/0001/checkpoint", shutil.rmtree, "weeks/0001/checkpoint is missing" + REPAIR),
        ("weeks/0001", shutil.rmtree, "weeks/0001 is missing" + REPAIR),
        ("weeks/0001/verdict.json", os.unlink, "no verdict that accepts it" + REPAIR),
        ("weeks/0001/week.json", other_number, "it has another number" + REPAIR),
        ("weeks/0001/rows/guards.ndjson", lambda one: one.write_text("{"), "guards.ndjson"),
        ("weeks/0001/ranks/guards.parquet", lambda one: one.write_text("x"), "guards.parquet"),
        ("start/buffer", shutil.rmtree, "start/buffer is missing" + REPAIR),
        ("history.ndjson", cut_last_line, "(week 1): lines are missing at its end; restore"),
        ("current", os.unlink, "current is missing; 'vlcpctl check "),
    ],
)
def test_each_damage_is_found(
    run: Run, state: Path, name: str, damage: Callable[[Path], object], said: str
) -> None:
    damage(state / name)
    found = problems(state)
    assert any(said in one for one in found), found
    done = run("check", state)
    assert (done.code, f"found in {state}" in done.err) == (3, True)


def test_only_deep_finds_an_image_that_has_changed(state: Path) -> None:
    tar = state / "weeks/0001/stream/00-week-0001/test-000000.tar"
    found = bytearray(tar.read_bytes())
    found[len(found) // 2] ^= 1
    tar.write_bytes(found)
    assert problems(state) == []
    (said,) = check_state(state, deep=True)
    assert said.startswith(f"{tar}, key ")


def test_another_checkpoint_in_its_place_is_found(run: Run, state: Path) -> None:
    shutil.rmtree(state / "weeks/0001/checkpoint")
    shutil.copytree(state / "start/checkpoint", state / "weeks/0001/checkpoint")
    (said,) = problems(state)
    assert "weeks/0001/checkpoint is checkpoint" in said


def test_deleted_pairs_that_came_back_are_found(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    shutil.copytree(state / "weeks/0001/stream", tmp_path / "stream")
    keys = tmp_path / "keys"
    from vlcpctl.data.tasks.task import open_task

    task = open_task(state / "weeks/0001/stream/00-week-0001")
    keys.write_text("\n".join(list(task.split("train").keys)[:3]))
    assert run("forget", "--keys", keys, state, "-q").code == 0
    assert problems(state) == []
    shutil.rmtree(state / "weeks/0001/stream")
    shutil.copytree(tmp_path / "stream", state / "weeks/0001/stream")
    found = [one for one in problems(state) if "of the deletion" in one]
    (said,) = found
    assert f"{state}/weeks/0001/stream/00-week-0001 has 3 pairs" in said
    assert f"run its 'vlcpctl forget' again for {state}" in said
    assert run("forget", "--keys", keys, state, "-q").code == 0
    assert problems(state) == []


@pytest.mark.parametrize("kind", ["a copy", "another directory", "a link elsewhere", "nothing"])
def test_the_repair_sets_current(run: Run, state: Path, kind: str) -> None:
    current = state / "current"
    checkpoint = current.resolve()
    current.unlink()
    if kind == "a copy":
        shutil.copytree(checkpoint, current)
        (current / "mine.txt").write_text("of a user")
    elif kind == "another directory":
        shutil.copytree(state / "start/checkpoint", current)
    elif kind == "a link elsewhere":
        current.symlink_to("start/checkpoint")
    assert len(problems(state)) == 1
    done = run("check", state, "--repair")
    assert (done.code, current.readlink()) == (0, Path("weeks/0001/checkpoint"))
    assert (state / "current.old").exists() == (kind != "nothing")
    assert (state / "current.old/mine.txt").exists() == (kind == "a copy")
    assert f"{current} is a link to {state}/weeks/0001/checkpoint again" in done.err
    assert run("check", state, "--repair", "-q").code == 0
    check_refused(run("check", state / "start/buffer", "--repair"), "check", 2, "has no effect")


def test_the_repair_reaches_what_is_below_an_unreadable_directory(state: Path) -> None:
    words = [sys.executable, "-m", "vlcpctl", "check", str(state), "--repair", "-q"]
    if os.geteuid() == 0:  # whom no mode stops, unless these rights are given up
        if shutil.which("setpriv") is None:
            pytest.skip("root reads everything, and setpriv is missing")
        words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]
    for name in ("weeks/0001/rows", "weeks/0001", "weeks"):
        (state / name).chmod(0)
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        for name in ("weeks", "weeks/0001", "weeks/0001/rows"):
            (state / name).chmod(0o755)
    assert done.returncode == 0, done.stderr


def test_a_ledger_that_is_a_pipe_is_refused(run: Run, place: Path, state: Path) -> None:
    (state / "history.ndjson").unlink()
    os.mkfifo(state / "history.ndjson")
    assert "history.ndjson: it is not a regular file" in run("check", state).out
    check_refused(run(*week_words(place, state, 2)), "update", 3, "history.ndjson")


def test_a_restored_state_goes_on(run: Run, place: Path, state: Path, tmp_path: Path) -> None:
    """As an object store has it: bytes of files alone; and the modes of another user."""
    restored = tmp_path / "restored"
    for path in state.rglob("*"):
        if path.is_file() and "current" not in path.relative_to(state).parts:
            (restored / path.relative_to(state)).parent.mkdir(parents=True, exist_ok=True)
            (restored / path.relative_to(state)).write_bytes(path.read_bytes())
    (restored / "weeks/0001/rows/guards.ndjson").chmod(0o444)
    (said,) = problems(restored)
    assert f"'vlcpctl check {restored} --repair' sets it" in said
    done = run("check", restored, "--repair")
    assert (done.code, "can be read and written again" in done.err) == (0, True)
    assert os.access(restored / "weeks/0001/rows/guards.ndjson", os.W_OK)
    # Guards are relative to the state: their place is given again.
    words = [*week_words(place, restored, 2), *PASSES, "--dry-run"]
    guard = ["--guard", place / "golden/00-golden", "--small-guard"]
    assert run(*words, *guard).code == 0
    assert Layout(restored).current.readlink() == Path("weeks/0001/checkpoint")


def test_inspect_says_how_the_last_week_was_trained(run: Run, state: Path) -> None:
    shown = run("inspect", state).out
    assert "  last training: micro, ctp, lr 0.001, 3 steps, batches of 4\n" in shown
    facts = json.loads(run("inspect", state, "--json").out)
    assert facts["training"]["batch_size"] == 4
