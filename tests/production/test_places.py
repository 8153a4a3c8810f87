"""Where a state directory is, by which path it is given, and what somebody has put into it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.processes import exit_code_of, run_line, start_child
from support.production import PASSES, tree, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.deletion.places import tops_of
from vlcpctl.deletion.request import tidy
from vlcpctl.files.outputs import Output
from vlcpctl.production.layout import Layout

Run = Callable[..., ProgramResult]

MEMORY = Path("/dev/shm")
_REPAIR = re.compile(r"'(mv [^\n]+?)', and")


def follow_repair(error: str) -> None:
    """Run the command that an error advises, in a shell."""
    found = _REPAIR.search(error)
    assert found, error
    subprocess.run(found[1], shell=True, check=True)


@pytest.fixture
def elsewhere(state: Path, place: Path) -> Iterator[Path]:
    """A link to a copy of the state on another file system."""
    if not MEMORY.is_dir() or MEMORY.stat().st_dev == state.stat().st_dev:
        pytest.skip("no second file system")
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        (Path(directory) / place.name).symlink_to(place)  # guards are recorded relative to it
        real = Path(directory) / state.parent.name / "prod"
        shutil.copytree(state, real, symlinks=True)
        link = state.with_name("link")
        link.unlink(missing_ok=True)
        link.symlink_to(real)
        yield link
        link.unlink()


def test_a_state_on_another_file_system_is_updated_and_rolled_back(
    run: Run, place: Path, elsewhere: Path
) -> None:
    (elsewhere / "pending" / "stream").mkdir(parents=True)  # of a rejected week
    done = run(*week_words(place, elsewhere, 2), *PASSES, "-q")
    assert (done.code, done.out) == (0, f"{elsewhere}/weeks/0002/checkpoint\n"), done.err
    (elsewhere / "pending").mkdir()
    done = run("update", "--state", elsewhere, "--rollback", "0")
    assert (done.code, done.out) == (0, f"{elsewhere}/start/checkpoint\n"), done.err
    names = [
        *("current", "embeddings", "history.ndjson", "rolled-back", "start", "state.json", "weeks")
    ]
    assert sorted(path.name for path in elsewhere.iterdir()) == names
    assert not list(elsewhere.parent.glob(".*.vlcpctl"))


def test_a_new_state_may_be_a_mounted_volume_but_no_directory_with_other_files(
    run: Run, place: Path, tmp_path: Path
) -> None:
    init = ["--init", place / "model", "--dry-run"]
    volume, export = tmp_path / "volume", tmp_path / "export"
    (volume / "lost+found").mkdir(parents=True)
    assert run(*week_words(place, volume, 1), *init).code == 0
    (export / ".vlcpctl").mkdir(parents=True)
    (export / ".vlcpctl" / "export.json").touch()
    for words in (init, init[:-1]):
        refused = run(*week_words(place, export, 1), *words)
        check_refused(refused, "update", 4, "export already exists and is not a state directory")


@pytest.mark.parametrize("by", ["link", "copy"])
@pytest.mark.parametrize("is_former", [False, True])
def test_two_calls_for_a_state_do_not_run_at_once_whatever_its_path(
    run: Run, place: Path, state: Path, by: str, is_former: bool
) -> None:
    link = state.with_name("link")
    link.unlink(missing_ok=True)
    link.symlink_to(state)
    before = tree(state)
    reader, writer = os.pipe()

    def lock() -> AbstractContextManager[None]:
        # Before 0.3.0 the lock was beside the state.
        return Output(state).locked() if is_former else Layout(state).locked()

    def hold(_: object) -> None:
        with lock():
            os.write(writer, b".")
            signal.pause()

    child = start_child(hold)
    os.close(writer)
    try:
        assert os.read(reader, 1), "the child has not locked it"
        root = state.with_name(by)
        for words in (week_words(place, root, 2), ["update", "--state", root, "--rollback", "0"]):
            check_refused(run(*words, "-q"), "update", 4, f"is being written by process {child}")
    finally:
        os.kill(child, signal.SIGKILL)
        assert exit_code_of(child) == -signal.SIGKILL
        link.unlink()
    # What the killed one has left is removed.
    assert run(*week_words(place, state, 1)).code == 0
    assert tree(state) == before
    assert not list(state.parent.glob(".*.vlcpctl"))


def test_a_path_may_be_relative_and_have_a_dash_and_a_space(
    run: Run, place: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = state.with_name("-a copy")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(state, root, symlinks=True)
    guard, data = state.with_name("-golden"), state.with_name("-week.parquet")
    shutil.copytree(place / "golden", guard, dirs_exist_ok=True)
    shutil.copy(place / "week-2.parquet", data)
    monkeypatch.chdir(state.parent)
    words = ["update", "--state", f"./{root.name}", *PASSES]
    words += ["--guard", f"./{guard.name}/00-golden", "--junit", "./-gates.xml", "-q"]
    done = run(*words, "--", data.name)
    assert (done.code, done.out) == (0, f"{root}/weeks/0002/checkpoint\n"), done.err
    assert state.with_name("-gates.xml").is_file()
    rollback = ["update", "--state", f"./{root.name}", "--rollback", "1"]
    (root / "current").unlink()
    (root / "current").touch()
    refused = run(*rollback)
    assert refused.code == 4
    follow_repair(refused.err)
    assert run(*rollback).out == f"{root}/weeks/0001/checkpoint\n"


def test_what_an_earlier_version_left_beside_the_state_is_removed(
    run: Run, place: Path, state: Path
) -> None:
    former = Output(state)
    (former.hidden / "writing-host-1" / "checkpoint").mkdir(parents=True)
    former.lock.touch()
    assert run(*week_words(place, state, 1)).code == 0
    assert not former.hidden.exists()


def test_a_deletion_removes_what_a_killed_update_left_in_the_state(state: Path) -> None:
    removed = Layout(state).scratch.hidden / "writing-host-1" / "checkpoint"
    shutil.copytree(state / "weeks" / "0001" / "checkpoint", removed)
    Layout(state).scratch.lock.touch()
    tidy(tops_of([removed]))  # the whole state
    assert not Layout(state).scratch.hidden.exists()


def _directory(current: Path) -> None:
    current.unlink()
    shutil.copytree(current.parent / "weeks" / "0001" / "checkpoint", current)


def _file(current: Path) -> None:
    current.unlink()
    current.write_text("weeks/0001/checkpoint")


def _relink(target: str) -> Callable[[Path], None]:
    def change(current: Path) -> None:
        current.unlink()
        current.symlink_to(target)

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_directory, "a directory"),
        (_file, "a file"),
        (_relink("start/checkpoint"), "a link to start/checkpoint"),
        (_relink("weeks/0009/checkpoint"), "a link to weeks/0009/checkpoint"),
    ],
)
def test_a_current_that_is_not_the_link_is_refused_and_the_repair_helps(
    run: Run, place: Path, state: Path, change: Callable[[Path], None], what: str
) -> None:
    change(state / "current")
    before = tree(state)
    said = f"current is {what}, not the link to {state}/weeks/0001/checkpoint"
    for words in (
        *(week_words(place, state, 1), week_words(place, state, 2)),
        *([*week_words(place, state, 2), "--dry-run"], ["update", "--state", state]),
    ):
        rollback = [] if len(words) > 3 else ["--rollback", "0"]
        check_refused(run(*words, *rollback), "update", 4, said)
    shown = run("inspect", state)
    assert shown.code == 3
    there = what.removeprefix("a link to ") if "link" in what else "current"
    assert f"current: {state}/{there}, which is not {state}/weeks/0001/checkpoint" in shown.out
    assert said in shown.err
    found = run("inspect", state, "--json")
    assert (found.code, json.loads(found.out)["current"]) == (3, f"{state}/{there}")
    assert tree(state) == before
    follow_repair(shown.err)
    assert run(*week_words(place, state, 1)).code == 0
    assert (state / "current").readlink() == Path("weeks/0001/checkpoint")
    assert run("inspect", state).code == 0


def test_without_links_there_is_no_current_which_is_said(
    run: Run, place: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state / "current").unlink()
    shown = run("inspect", state)
    checkpoint = f"{state}/weeks/0001/checkpoint"
    assert f"current: no link; the last accepted checkpoint is {checkpoint}" in shown.out
    assert (shown.code, json.loads(run("inspect", state, "--json").out)["current"]) == (0, None)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "symlink_to", _refused(errno.EPERM))
        done = run(*week_words(place, state, 1))
        assert (done.code, done.out) == (0, f"{checkpoint}\n")
        assert f"this file system has no links; deploy {checkpoint}" in done.err
        patched.setattr(Path, "symlink_to", _refused(errno.ENOSPC))
        check_refused(run(*week_words(place, state, 1)), "update", 1, "No space left")
    assert run(*week_words(place, state, 1)).code == 0
    assert (state / "current").readlink() == Path("weeks/0001/checkpoint")


def _refused(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_call_that_is_killed_at_the_link_leaves_nothing(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    before = tree(state)
    (state / "current").unlink()

    def killed_before_the_rename(_rank: int) -> None:
        Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        run_line(week_words(place, state, 1), tmp_path / "log")

    assert exit_code_of(start_child(killed_before_the_rename)) == -signal.SIGKILL
    left = {path.name for path in state.iterdir()}
    assert left == {".vlcpctl", "embeddings", "history.ndjson", "start", "state.json", "weeks"}
    assert run(*week_words(place, state, 1)).code == 0
    assert tree(state) == before


def test_a_week_that_is_put_into_the_state_is_compared_before_it_is_taken_in(
    run: Run, place: Path, state: Path
) -> None:
    weeks = state / "weeks"
    for number, said in (
        (2, "was made as week 1 after checkpoint"),
        (4, "0004 is not in state.json"),
    ):
        shutil.copytree(weeks / "0001", weeks / f"{number:04d}", symlinks=True)
        before = tree(state)
        for words in (week_words(place, state, 2), ["update", "--state", state, "--rollback", "0"]):
            refused = run(*words)
            check_refused(refused, "update", 3, said)
        assert tree(state) == before
        follow_repair(refused.err)
        assert run(*week_words(place, state, 1)).code == 0
        shutil.rmtree(state / f"{number:04d}.old")
    # The right one: a week that was rolled back and is put back by hand is taken in.
    before = tree(state)
    assert run("update", "--state", state, "--rollback", "0").code == 0
    (state / "rolled-back" / "0001").rename(weeks / "0001")
    assert run(*week_words(place, state, 1)).code == 0
    after = tree(state)
    new = after.pop("history.ndjson")[len(before.pop("history.ndjson")) :]
    assert [one["action"] for one in new] == ["rolled back", "accepted"]
    assert after == before
