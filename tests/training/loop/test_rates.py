"""The losses and pairs per second beside the progress of a training loop."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vlcpctl.training import loop as loop_module
from vlcpctl.training.loop import TrainingLoop
from vlcpctl.training.settings import SaveEvery
from vlcpctl.training.state import SavedProgress


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> TrainingLoop:
    """A loop that resumed; each look at the clock is 2 s after the last one."""
    ticks = itertools.count(0, 2)
    monkeypatch.setattr(loop_module.time, "monotonic", lambda: float(next(ticks)))
    unused: Any = None
    run: Any = SimpleNamespace(device=torch.device("cpu"))
    return TrainingLoop(
        run=run,
        phases=(),
        epoch_steps=1,
        batches=unused,
        partial=unused,
        metrics_log=unused,
        every=SaveEvery(),
        stop=unused,
        saved=SavedProgress(pairs=10**6, train_seconds=1.0),
    )


def test_pairs_of_an_earlier_process_are_not_in_the_rate(loop: TrainingLoop) -> None:
    loop.saved.pairs += 64
    assert loop.pairs_per_second() == 32


def test_seconds_of_an_earlier_process_are_in_the_time(loop: TrainingLoop) -> None:
    assert loop.seconds() == 3  # 1 s of the earlier one
