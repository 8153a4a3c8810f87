"""The table of what is written by hand names files that exist, with their sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "handwritten.md"
ROW = re.compile(r"^\| [^|]+ \| ((?:`[^`|]+`(?:, )?)+) \| (\d+) \|", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def lines_of(name: str) -> int:
    path = ROOT / "vlcpctl" / name
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


@pytest.mark.parametrize(("names", "count"), ROWS)
def test_sizes_are_about_right(names: str, count: str) -> None:
    """To 15 %, so that a small change of the code does not need one of the page."""
    found = sum(map(lines_of, re.findall("`([^`]+)`", names)))
    assert int(count) == pytest.approx(found, rel=0.15)


def test_no_row_is_missed() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## What a library does")[0]
    assert len(ROWS) == table.count("\n|") - 2
