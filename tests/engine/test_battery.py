"""One interpreter = one process per task = processes killed and resumed, byte for byte.

A method is in the battery by being in the table.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.battery import (
    TASKS,
    World,
    checkpoint_bytes,
    in_child,
    in_one_interpreter,
    kill_at,
    make_world,
    request,
)

from vlcpctl.engine.compose import compose
from vlcpctl.methods import TABLE

COMPOSED = ["ctp+dha", "ewc+mas"]
BUFFERED = ["er", "ctp"]

# Between two saves, right after one, at the end of the phase, and on both sides of the rename.
POINTS = ["step=0", "saved", "step=3", "step=4", "step=5", "phase=0", "before-rename", "renamed"]

# The same inside a second phase, of three steps, which measures: after a save, before the next.
MEASURING = ["step=0", "step=1", "step=2", "phase=1"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def test_the_battery_covers_the_table() -> None:
    names = ["ctp", "dha", "er", "ewc", "joint", "lwf", "mas", "modx", "rwalk", "seqf", "si"]
    assert sorted(TABLE) == names


@pytest.mark.parametrize(
    "name", [*sorted(TABLE), *COMPOSED, *(f"{name} with a buffer" for name in BUFFERED)]
)
def test_killed_and_resumed_equals_never_stopped(world: World, tmp_path: Path, name: str) -> None:
    method, buffered = name.removesuffix(" with a buffer"), name.endswith("buffer") or name == "er"

    def chain(root: str) -> list[object]:
        return [
            request(world, method, number, tmp_path / root, buffered=buffered, save_every="2")
            for number in range(TASKS)
        ]

    points = list(POINTS)
    if any(not phase.trains for part in compose(method) for phase in part.phases()):
        after = points.index("phase=0") + 1
        points[after:after] = MEASURING
    in_one_interpreter(chain("one"))
    for step in chain("apart"):
        assert in_child(step) == 0
    for step in chain("killed"):
        for point in points:
            assert in_child(step, kill_at(point)) == -signal.SIGKILL, point
        assert in_child(step) == 0
    expected = checkpoint_bytes(tmp_path / "one")
    assert len(expected) >= 2 * TASKS
    assert checkpoint_bytes(tmp_path / "apart") == expected
    assert checkpoint_bytes(tmp_path / "killed") == expected
