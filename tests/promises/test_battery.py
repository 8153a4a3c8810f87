"""One interpreter = one process per task = processes killed and resumed, byte for byte.

A method is in the battery by being in the table.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.battery import (
    TASKS,
    TrainingWorld,
    checkpoint_bytes,
    in_child,
    in_one_interpreter,
    kill_at,
    make_world,
    request,
    with_fusion_model,
)
from support.marks import mostly_slow

from vlcpctl.methods import TABLE
from vlcpctl.training.config.request import Request
from vlcpctl.training.plan import make_plan

COMPOSED = ["ctp+dha", "ema+ewc", "ewc+mas"]
BUFFERED = ["ctp"]
FUSED = ["ctp", "lucir", "mas", "afec"]  # each has terms over tokens of its own

ENDS = ["before-rename", "renamed"]


def points_of(step: Request) -> list[str]:
    """Where to kill: before the first save, right after it, near the end of each phase, at its end.

    A process that was killed resumes from the last save, every second step, to the next point.
    """
    points = []
    for number, phase in enumerate(make_plan(step).phases):
        opening = ["step=0", "saved"] if number == 0 else ["step=0"]
        closing = [
            f"step={last}" for last in range(max(len(opening), phase.steps - 3), phase.steps)
        ]
        points += [*opening, *closing, f"phase={number}"]
    return [*points, *ENDS]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    return make_world(tmp_path_factory.mktemp("world"))


def test_the_battery_covers_the_table() -> None:
    first = "afec co2l ctp der derpp dha ema er ewc geodl icarl incclip"
    names = f"{first} joint lucir lwf mas modx rwalk seqf si"
    assert sorted(TABLE) == names.split()


@pytest.mark.parametrize(
    "name",
    mostly_slow(
        [
            *(*sorted(TABLE), *COMPOSED),
            *(f"{name} with a buffer" for name in BUFFERED),
            *(f"fused {name}" for name in FUSED),
        ],
        kept=["ctp", "er"],
    ),
)
def test_killed_and_resumed_equals_never_stopped(
    world: TrainingWorld, tmp_path: Path, name: str
) -> None:
    method = name.removesuffix(" with a buffer").removeprefix("fused ")
    buffered = name.endswith("buffer")
    if name.startswith("fused"):
        world = with_fusion_model(world)

    def chain(root: str) -> list[Request]:
        return [
            request(world, method, number, tmp_path / root, buffered=buffered, save_every="2")
            for number in range(TASKS)
        ]

    in_one_interpreter(chain("one"))
    for step in chain("apart"):
        assert in_child(step) == 0
    for step in chain("killed"):
        for point in points_of(step):
            assert in_child(step, kill_at(point)) == -signal.SIGKILL, point
        assert in_child(step) == 0
    expected = checkpoint_bytes(tmp_path / "one")
    assert len(expected) >= 2 * TASKS
    assert checkpoint_bytes(tmp_path / "apart") == expected
    assert checkpoint_bytes(tmp_path / "killed") == expected
