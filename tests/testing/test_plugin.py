"""`python -m vlcpctl.testing` tests a method of a file, and finds its mistakes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.method_files import MINE, write_method

from vlcpctl.testing.conftest import pytest_ignore_collect
from vlcpctl.testing.plugin import CASE

ROOT = Path(__file__).parents[2]


def run_tests(directory: Path, *words: str, module: str = "vlcpctl.testing") -> tuple[int, str]:
    """The exit code and the output of `python -m vlcpctl.testing WORDS` there."""
    line = [sys.executable, "-m", module, "-p", "no:cacheprovider", *words]
    ended = subprocess.run(line, cwd=directory, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_a_method_must_be_named(tmp_path: Path) -> None:
    code, said = run_tests(tmp_path)
    assert code == 4
    assert "ERROR: vlcpctl.testing tests one method: add --method NAME" in said


def test_tests_of_a_method_are_collected_only_where_one_is_named() -> None:
    """Runs over directories that contain them leave them out, as those of this project do."""
    here, stash = Path("here"), dict.fromkeys([CASE])
    for config, found in ((Mock(stash={}), True), (Mock(stash=stash), None)):
        assert pytest_ignore_collect(here / "test_method.py", config) is found
        assert pytest_ignore_collect(here / "test_other.py", config) is None


def test_pytest_does_not_load_it_by_itself() -> None:
    """Its options have general names: a project may have the same ones."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "pytest11" not in project.get("entry-points", {})


def test_a_project_may_have_options_of_the_same_names(tmp_path: Path) -> None:
    write_method(tmp_path / "mine.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --method-file=theirs\n")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--method')\n"
        "    parser.addoption('--method-file')\n"
    )
    words = ("--method", "mine", "--method-file", "mine.py", "-k", "declares")
    code, said = run_tests(tmp_path, *words)
    assert code == 0, said
    assert "1 passed, 9 deselected" in said


@pytest.mark.slow
def test_pytest_takes_the_plugin_by_its_name(tmp_path: Path) -> None:
    write_method(tmp_path / "mine.py")
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    plugin = ("-p", "vlcpctl.testing.plugin", "--pyargs", "vlcpctl.testing", "test_own.py")
    words = (*plugin, "--method", "mine", "--method-file", "mine.py", "-k", "declares or own")
    code, said = run_tests(tmp_path, *words, module="pytest")
    assert code == 0, said
    assert "2 passed, 9 deselected" in said


@pytest.mark.slow
def test_a_sound_method_passes(tmp_path: Path) -> None:
    write_method(tmp_path / "mine.py")
    code, said = run_tests(tmp_path, "--method", "mine", "--method-file", "mine.py")
    assert code == 0, said
    assert "9 passed, 1 skipped" in said


UNSOUND = {
    "declares": ('doc="Weight of the penalty."', 'doc=""'),  # not described
    "killed": ('"seen", lifetime="stream", start=seen', '"seen", lifetime="task", start=drawn'),
    "processes": ("self.strength * sum(moved)", "self.strength * run.processes * sum(moved)"),
    "turned_off": ("return {}, {}", "return {'late': out.image.sum()}, {}"),
    "finite": ("self.strength * sum(moved)", "(sum(moved) - sum(moved)).sqrt()"),
}
DRAWN = """

def drawn(run):
    import torch

    torch.seed()
    return {"pairs": torch.rand(())}
"""


@pytest.mark.slow
@pytest.mark.parametrize("law", UNSOUND)
def test_an_unsound_method_fails(tmp_path: Path, law: str) -> None:
    old, new = UNSOUND[law]
    assert old in MINE
    code = MINE.replace(old, new) + DRAWN
    if law == "killed":  # what is drawn anew must reach the weights
        code = code.replace(
            "return {}, {}", "return {'x': out.image.sum() * run.slot('seen')['pairs']}, {}"
        )
    write_method(tmp_path / "mine.py", code)
    dual = f"{law} and not fusion and not buffer"
    ended, said = run_tests(tmp_path, "--method", "mine", "--method-file", "mine.py", "-k", dual)
    assert ended == 1, said
