"""The losses and pairs per second beside the progress of a training loop."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from vlcpctl.training import loop as loop_module
from vlcpctl.training.loop import TrainingLoop
from vlcpctl.training.settings import SaveEvery
from vlcpctl.training.state import SavedProgress
from vlcpctl.training.step import StepValues


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


@pytest.mark.parametrize(
    ("terms", "loss", "shown"),
    [
        ({"contrastive": 4.0, "ctp/queue": 5.0}, "softmax", "contrastive 4.000 (chance 4.16)"),
        ({"contrastive": 4.0}, "sigmoid", "contrastive 4.000 (chance 5.15)"),
        ({"incclip/loss": 4.0, "incclip/distil": 1.0}, "softmax", "loss 5.000"),
        ({}, "softmax", ""),
    ],
)
def test_the_contrastive_loss_is_shown_beside_chance(
    loop: TrainingLoop,
    monkeypatch: pytest.MonkeyPatch,
    terms: dict[str, float],
    loss: str,
    shown: str,
) -> None:
    monkeypatch.setattr(loop, "_record", lambda *_: None)
    run, phase = cast("Any", loop.run), cast("Any", None)
    run.settings = SimpleNamespace(batch_size=64, loss=loss)
    tensors = {name: torch.tensor(value) for name, value in terms.items()}
    total = torch.tensor(sum(terms.values()))
    loop._unread = [(StepValues.of((phase, 0), total, tensors, {}), 0.1)]
    loop._read(phase)
    assert loop._note.rpartition(", ")[0] == shown
