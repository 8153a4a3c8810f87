"""The names by which the report of a week knows its guards."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.production.guards import guard_patterns
from vlcpctl.production.settings import Guard, Settings


def test_patterns_are_the_names_that_rows_have(tmp_path: Path) -> None:
    guard = Guard("golden", "id", "00-golden[1]")
    classes = ("name:wds_vtab-flowers", "path:birds")
    both = Settings(run="shop", guards=(guard,), classes=classes)
    names = ["00-golden[[]1]", "flowers", "birds", "average of 2*"]
    assert guard_patterns(tmp_path, both) == names
    group = guard_patterns(tmp_path, Settings(run="shop", classes=("name:incclip",)))
    assert group[:2] == ["imagenet1k", "cifar10"]
    assert group[-1] == f"average of {len(group) - 1}*"
