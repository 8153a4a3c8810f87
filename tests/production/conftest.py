"""A state directory after its first week, made once; each test gets a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import PASSES, first_words, make_place, week
from support.program import ProgramResult, run_program
from support.stub import Stub

from vlcpctl.production import week as module

Run = Callable[..., ProgramResult]


@pytest.fixture
def real(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `vlcpctl WORDS` in this process."""
    return lambda *words: run_program(capfd, *words)


@pytest.fixture
def run(real: Run, after_one: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Likewise, but no line of a week trains or loads a model."""
    monkeypatch.setattr(module, "run_line", Stub(week(after_one, 1) / "checkpoint"))
    return real


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weeks of pairs, a guard and a model."""
    return make_place(tmp_path_factory.mktemp("place"), 6)


@pytest.fixture(scope="session")
def after_one(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory after its first week; tests copy it."""
    state = tmp_path_factory.mktemp("after") / "prod"
    capture = pytest.MonkeyPatch()
    with capture.context() as patched:
        from vlcpctl import cli

        words = [str(one) for one in ["vlcpctl", *first_words(place, state), *PASSES]]
        patched.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code
    return state


@pytest.fixture
def state(after_one: Path) -> Path:
    """A copy of it, beside the original, so that relative paths stay right."""
    copy = after_one.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(after_one, copy, symlinks=True)
    return copy
