"""What a train-step reports beside its progress, and at its end from its journal."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vlcpctl.training import loop as loop_module
from vlcpctl.training.loop import TrainingLoop
from vlcpctl.training.settings import SaveEvery
from vlcpctl.training.state import SavedProgress, outcome

ROWS = [
    {"phase": "train", "step": 0, "loss": 5.0, "contrastive": 5.0, "lr": 1e-3},
    {"phase": "train", "step": 1, "loss": 4.0, "contrastive": 4.0, "lr": 1e-3},
    {"phase": "train", "step": 1, "val_loss": 3.0, "val_rmean": 40.0},
    {"phase": "train", "step": 2, "loss": 3.5, "contrastive": 3.5, "lr": 1e-3},
    {"phase": "train", "step": 3, "loss": 2.5, "contrastive": 2.5, "lr": 1e-3},
    {"phase": "train", "step": 3, "val_loss": 3.5, "val_rmean": 45.25},
    {"phase": "fisher", "step": 0, "loss": 9.0, "contrastive": 9.0, "lr": 0.0},
]


def _said(directory: Path, rows: list[dict[str, Any]], *more: Any) -> list[str]:
    path = directory / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return list(outcome(path, *more))


def test_the_last_loss_is_that_of_training(tmp_path: Path) -> None:
    assert _said(tmp_path, ROWS, 200, 256, " (2 pairs/s)") == [
        "trained 4 steps on 256 pairs in 3 min 20 s (2 pairs/s); final loss 2.500",
        "validation after step 4: loss 3.500, R@mean 45.25",
    ]
    assert _said(tmp_path, [], 1, 0, "") == ["trained 0 steps on 0 pairs in 1.0 s"]


def test_the_validation_is_that_of_the_kept_weights(tmp_path: Path) -> None:
    assert _said(tmp_path, ROWS, 1, 1, "", "best:val_loss")[1] == (
        "validation after step 2, the best of 2: loss 3.000, R@mean 40.00"
    )
    best = _said(tmp_path, ROWS, 1, 1, "", "best:val_rmean")[1]
    assert best.startswith("validation after step 4, the best")


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
