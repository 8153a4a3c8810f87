"""A state loads no code: --method-file is given with each call, and changed code is another run."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.method_files import MINE, write_method
from support.production import SETTINGS, make_place, week_words
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.methods.plugins.method_file import digest_of
from vlcpctl.production.layout import Layout
from vlcpctl.production.settings import MethodCode
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ({"method": "mine"}, "--method-file"),
        ({"train_options": ("--method-file", "prod/mine.py")}, "--method-file"),
        ({"deploy": "prod/rule.py"}, "--deploy"),
    ],
)
def test_a_state_from_somebody_else_executes_nothing(
    run: Run, place: Path, state: Path, tmp_path: Path, recorded: dict[str, Any], said: str
) -> None:
    ran = tmp_path / "ran"
    trap = f"open({str(ran)!r}, 'w').close()\n"
    code = write_method(state / "mine.py", MINE + trap).read_bytes()
    (state / "rule.py").write_text(trap)
    for name in ("on-accept", "on-reject", "hooks/on-accept"):
        (state / name).parent.mkdir(exist_ok=True)
        (state / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (state / name).chmod(0o755)
    layout = Layout(state)
    found = read_state(layout)
    files = (MethodCode("mine.py", digest_of(code), ("mine",)),)
    hostile = replace(found.settings, method_files=files, **recorded)
    replace(found, settings=hostile).write(layout)
    with tarfile.open(tmp_path / "prod.tar", "w") as tar:
        tar.add(state, "theirs")
    with tarfile.open(tmp_path / "prod.tar") as tar:
        tar.extractall(tmp_path, filter="tar")
    theirs = tmp_path / "theirs"  # as deep as the state: guards are relative to it
    for words in (["check"], ["inspect"], ["update", "--rollback", "1", "--state"]):
        assert run(*words, theirs).code == 0
    for week in (1, 2):  # known and new data
        for dry in (["--dry-run"], []):
            refused = run(*week_words(place, theirs, week), *dry)
            check_refused(refused, "update", 2, said)
    check_refused(run("update", "--state", theirs, "--redo", "1", "--dry-run"), "update", 2, said)
    assert not ran.exists()


def test_the_file_is_given_with_each_call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, state = make_place(tmp_path / "place"), tmp_path / "prod"
    file = write_method(tmp_path / "mine.py")
    how = ("--init", place / "model", *SETTINGS, "--fail-if", "rm:lt:0")
    mine = ("--method", "mine", "--method-file", file)
    first = run_program(capfd, *week_words(place, state, 1), *how, *mine)
    assert first.code == 0, first.err
    second = [*week_words(place, state, 2), "--dry-run"]
    check_refused(run_program(capfd, *second), "update", 2, "--method-file")
    moved = write_method(tmp_path / "moved.py")
    found = run_program(capfd, *second, "--method-file", moved)
    assert f"--method-file {moved}" in found.out, found.err
    known = [*week_words(place, state, 1), "--method-file"]
    assert run_program(capfd, *known, moved).code == 0
    write_method(moved, MINE + "# changed\n")
    check_refused(run_program(capfd, *known, moved), "update", 4, "--method-file")
    # Another method needs neither the file nor its state.
    other = run_program(capfd, *second, "--method", "ctp", "--fresh-state")
    assert (other.code, "--method-file" in other.out) == (0, False), other.err
