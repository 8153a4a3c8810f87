"""Checkpoints of a run with training logs, which no command has written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from support.checkpoints import write_checkpoint_manifest

NAMES = ("00-smileys", "01-people", "02-animals", "03-food")
SETTINGS = {"lr": 0.1, "epochs": 2, "micro_batch": None}


def log_lines(steps: Iterable[int], phase: str = "train", **terms: float) -> str:
    """Rows of a training log whose loss falls from step to step."""
    rows = [
        {"phase": phase, "step": step, "loss": round(4 - 0.1 * step, 6), **terms} for step in steps
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_step(
    directory: Path, step: int, log: str | None = None, slots: int = 0, **facts: Any
) -> Path:
    """The checkpoint `c{step}` of run ctp, seed 0, trained on that of the step before."""
    directory.mkdir(parents=True)
    if log is not None:
        (directory / "metrics.jsonl").write_text(log)
    (directory / "open_clip_model.safetensors").write_bytes(b"w" * 2000)
    if slots:
        (directory / "method/ctp").mkdir(parents=True)
        (directory / "method/ctp/queue.safetensors").write_bytes(b"s" * slots)
    content = facts.pop("content", f"c{step}")
    usual = {
        "identity": {"settings": SETTINGS, "hyper": {"ctp": {"m": 0.9}}, "tasks": [f"t{step}"]},
        "step": step,
        "stream": "s",
        "tasks": [f"t{place}" for place in range(step + 1)],
        "task_names": list(NAMES[: step + 1]),
        "pairs": 320,
        "train_seconds": 4.0,
        "parent": f"c{step - 1}" if step else None,
        "origins": {"lr": "preset tiny, not in the paper", "epochs": "flag"},
    }
    write_checkpoint_manifest(directory, content, **{**usual, **facts})
    return directory


def write_run(root: Path, steps: Sequence[int] = (0, 1, 2), **facts: Any) -> Path:
    """The checkpoints of a run of ten optimizer steps a task, one directory for each task."""
    for step in steps:
        write_step(root / NAMES[step], step, log_lines(range(10)), **facts)
    return root
