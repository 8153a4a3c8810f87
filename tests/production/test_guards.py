"""The names by which the report of a week knows its guards."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.production.guards import guard_patterns, sights
from vlcpctl.production.settings import Guard, Settings
from vlcpctl.testing.tiny_stream import make_task


def test_patterns_are_the_names_that_rows_have(tmp_path: Path) -> None:
    guard = Guard("golden", "id", "00-golden[1]")
    classes = ("name:wds_vtab-flowers", "path:birds")
    both = Settings(run="shop", guards=(guard,), classes=classes)
    names = ["00-golden[[]1]", "flowers", "birds", "average of 2*"]
    assert guard_patterns(tmp_path, both) == names
    group = guard_patterns(tmp_path, Settings(run="shop", classes=("name:incclip",)))
    assert group[:2] == ["imagenet1k", "cifar10"]
    assert group[-1] == f"average of {len(group) - 1}*"


def test_only_conditions_judged_against_chance_are_counted(tmp_path: Path) -> None:
    make_task(tmp_path / "golden", splits={"train": 1, "test": 60})
    guards = (Guard("golden", "id", "00-golden"),)
    two, more = (
        Settings(run="shop", guards=guards, fail_if=gates)
        for gates in (
            ("worst_drop:gt:2", "step_drop:gt:2"),
            ("worst_drop:gt:2", "step_drop:gt:2", "drop_low:gt:0", "drop_high:gt:9"),
        )
    )
    assert sights(tmp_path, two, {}) == sights(tmp_path, more, {})
    (one,) = sights(tmp_path, two, {})
    (less,) = sights(tmp_path, Settings(run="shop", guards=guards, fail_if=("drop:gt:2",)), {})
    assert less.sees < one.sees
