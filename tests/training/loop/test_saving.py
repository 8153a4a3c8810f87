"""When a loop of several processes asks whether to save."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from vlcpctl.training.loop import TrainingLoop
from vlcpctl.training.settings import SaveEvery


def test_processes_are_asked_only_when_values_were_read() -> None:
    asked: list[list[bool]] = []

    def ask(flags: list[bool], _device: torch.device) -> list[bool]:
        asked.append(flags)
        return [False for _ in flags]

    world = SimpleNamespace(size=2, any=ask)
    loop: Any = SimpleNamespace(
        run=SimpleNamespace(world=world, device=torch.device("cpu")),
        every=SaveEvery(),
        saved=SimpleNamespace(step=1),
        last_saved=0.0,
        stop=False,
        _unread=["values on the device"],
    )
    TrainingLoop._save_if_due(loop, None)  # type: ignore[arg-type]
    assert asked == []
    loop._unread = []
    TrainingLoop._save_if_due(loop, None)  # type: ignore[arg-type]
    assert len(asked) == 1
