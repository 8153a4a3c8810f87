"""What a train-step reports at its end, read from its journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vlcpctl.training.state import outcome

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
