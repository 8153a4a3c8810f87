"""--attempt: another training of one seed, by other draws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vlcpctl.core.errors import OutputExists
from vlcpctl.files.manifest import read_manifest
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.train_step import train_step

WEIGHTS = "open_clip_model.safetensors"


def test_each_attempt_draws_differently_and_is_of_the_same_seed(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "seqf", 0, tmp_path / "run", buffered=False)
    weights = []
    for attempt in (0, 1, 2):
        out = tmp_path / str(attempt)
        train_step(replace(step, out=out, attempt=attempt))
        weights.append((out / WEIGHTS).read_bytes())
        made = read_manifest(out, "checkpoint")
        assert (made["seed"], made["identity"]["attempt"]) == (0, attempt)
    assert len(set(weights)) == 3
    with pytest.raises(OutputExists, match="attempt was 2 and is now 1"):
        train_step(replace(step, out=tmp_path / "2", attempt=1))
    train_step(replace(step, out=tmp_path / "again", attempt=1))
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == weights[1]
