"""recipes/mutants.py: breaks are one line each, and the tests that execute the line kill them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.recipe_lines import RECIPES

SOURCE = '''"""Sums."""


def total(values: list[int]) -> int:
    """The sum.

    >>> total([1, 2])
    3
    """
    count = sum(values)
    return count


def is_large(count: int) -> bool:
    """Whether a count is large."""
    assert isinstance(count, int)
    check(count)
    return count > 7


def check(count: int) -> None:
    """Refuse negative counts."""
    if count < 0:
        raise ValueError(f"{count} < 0")
'''
TESTS = """
from vlcpctl.deletion.sums import is_large

def test_nine_is_large():
    assert is_large(9)
"""
MORE_TESTS = """
import pytest

def test_negative_counts_are_refused():
    with pytest.raises(ValueError):
        is_large(-1)
"""


@pytest.fixture
def mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, over a package with one file and one test."""
    spec = importlib.util.spec_from_file_location("mutants", RECIPES / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    root = tmp_path / "root"
    for name, text in (("vlcpctl/deletion/sums.py", SOURCE), ("tests/test_sums.py", TESTS)):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    (root / "pytest.ini").write_text("[pytest]\naddopts = --doctest-modules\nmarkers = slow\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(module, "LIST", root / "mutants.jsonl")
    monkeypatch.setattr(module, "SUBJECTS", {"deletion": ["tests"]})
    return module


def test_breaks_are_one_line_of_code_by_the_rules(mutants: ModuleType) -> None:
    found = [(one.kind, one.line, one.broken.strip()) for one in mutants.candidates("deletion")]
    assert sorted(found) == [
        ("call", 17, "pass"),
        ("constant", 18, "return count > 8"),
        ("constant", 23, "if count < 1:"),
        ("operator", 18, "return count >= 7"),
        ("operator", 23, "if count <= 0:"),
        ("return", 11, "return 0"),
        ("return", 18, "return False"),
        ("return", 18, "return True"),
    ]


@pytest.mark.slow
def test_examples_and_tests_kill_and_survivors_are_tried_again(
    mutants: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "KINDS", ("call", "return"))

    def call(*words: object) -> None:
        monkeypatch.setattr(sys, "argv", ["mutants.py", *map(str, words)])
        mutants.main()

    def results() -> dict[str, list[str]]:
        rows = [json.loads(line) for line in mutants.LIST.read_text().splitlines()]
        return {
            row["broken"].strip(): [row[at]["result"] for at in ("before", "after") if at in row]
            for row in rows
        }

    call("draw", "--count", 2, "--seed", 2)
    drawn = mutants.LIST.read_text()
    call("draw", "--count", 2, "--seed", 2)
    assert mutants.LIST.read_text() == drawn
    call("run", "--work", tmp_path / "work")
    before = results()
    assert len(before) == 2
    assert before["return 0"] == ["killed"]
    assert before["pass"] == ["survived"]
    # The line stands elsewhere by then.
    (mutants.ROOT / "vlcpctl/deletion/sums.py").write_text(
        SOURCE.replace("    assert", "\n    assert")
    )
    with (mutants.ROOT / "tests/test_sums.py").open("a") as file:
        file.write(MORE_TESTS)
    call("run", "--again", "--work", tmp_path / "work")
    assert results()["return 0"] == ["killed"]
    assert results()["pass"] == ["survived", "killed"]
