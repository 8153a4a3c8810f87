"""The table of what is written by hand names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "handwritten.md"


def test_every_row_names_files_of_the_package() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## What a library does")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert rows
    for part, files, *_ in rows:
        names = re.findall("`([^`]+)`", files)
        assert names, part
        missing = [name for name in names if not (ROOT / "vlcpctl" / name).exists()]
        assert not missing, f"{part}: {missing}"
