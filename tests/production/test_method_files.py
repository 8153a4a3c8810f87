"""`update` remembers a --method-file with its digest, and never runs changed code unseen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from support.method_files import MINE, write_method
from support.production import SETTINGS, make_place, week_words
from support.program import check_refused, run_program

from vlcpctl.production.settings import MethodCode, Settings, load_recorded


def test_code_decides_whether_two_settings_are_the_same() -> None:
    code = MethodCode("a/mine.py", "sha256:1", ("mine",))
    assert code == MethodCode("b/mine.py", "sha256:1", ("mine",))
    assert code != MethodCode("a/mine.py", "sha256:2", ("mine",))


def test_recorded_code_is_loaded_by_another_process(tmp_path: Path) -> None:
    file = write_method(tmp_path / "fresh.py", mine="fresh")  # which this one has not loaded
    digest = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    recorded = (MethodCode("fresh.py", digest, ("fresh",)),)
    settings = Settings(run="shop", method="fresh", method_files=recorded)
    assert not settings.is_loaded
    load_recorded(tmp_path, recorded)
    assert [method.name for method in settings.methods] == ["fresh"]


def test_the_file_is_remembered_and_its_changes_are_noticed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, state = make_place(tmp_path / "place"), tmp_path / "prod"
    file = write_method(tmp_path / "mine.py")
    how = ("--init", place / "model", *SETTINGS, "--fail-if", "rm:lt:0")
    mine = ("--method", "mine", "--method-file", file)
    first = run_program(capfd, *week_words(place, state, 1), *how, *mine)
    assert first.code == 0, first.err
    recorded = json.loads((state / "state.json").read_text())["settings"]["method_files"]
    assert [(one["path"], one["methods"]) for one in recorded] == [("../mine.py", ["mine"])]
    second = [*week_words(place, state, 2), "--dry-run"]
    assert f"--method-file {file}" in run_program(capfd, *second).out
    (tmp_path / "trap").mkdir()
    trap = f"open({str(tmp_path / 'trap' / 'ran')!r}, 'w').close()\n"
    write_method(file, MINE + trap)
    check_refused(run_program(capfd, *second), "update", 3, "mine.py has changed", "restore it")
    assert not any((tmp_path / "trap").iterdir())  # it was not run
    again = run_program(capfd, *second, "--method-file", file)
    assert f"--method-file {file}" in again.out, again.err
    file.unlink()
    lost = run_program(capfd, *second)
    check_refused(lost, "update", 3, "mine.py does not exist", "--method-file gives its place")
    moved = write_method(tmp_path / "moved.py")
    found = run_program(capfd, *second, "--method-file", moved)
    assert f"--method-file {moved}" in found.out, found.err
    # Another method needs neither the file nor its state.
    other = run_program(capfd, *second, "--method", "ctp", "--fresh-state")
    assert other.code == 0, other.err
    assert "--method-file" not in other.out
