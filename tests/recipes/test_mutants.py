"""recipes/mutants.py: breaks are one line each, and tests of the module are found."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from support.recipe_lines import RECIPES

SOURCE = '''"""Sums."""


def is_large(values: list[int]) -> bool:
    """Whether a sum is large."""
    assert values != []
    check(values)
    return sum(values) > 7 and True
'''
BROKEN = {
    "pass",
    "return None",
    "return sum(values) >= 7 and True",
    "return sum(values) > 8 and True",
    "return sum(values) > 7 and False",
    "return (sum(values) > 7 or True)",
}


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(RECIPES / "mutants.py"))


def test_what_a_test_could_notice_is_broken(script: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "vlcpctl" / "room" / "sums.py"
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    found = list(script["breaks"](file, tmp_path))
    assert {one.new for one in found} == BROKEN
    assert {one.line for one in found} == {7, 8}
    for one in found:
        compile(one.source, one.file, "exec")
    drawn = script["draw"](tmp_path, 1, 2)
    assert {(one.file, one.line) for one in drawn} == {("vlcpctl/room/sums.py", n) for n in (7, 8)}


def test_tests_of_a_module_come_first(script: dict[str, Any]) -> None:
    first, second, *_, last = script["tests_of"]("vlcpctl/metrics/chance.py", RECIPES.parent)
    assert (first, last) == ("vlcpctl/metrics/chance.py", "tests/metrics")
    assert "test_" in second
