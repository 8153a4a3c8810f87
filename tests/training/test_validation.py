"""Validation in two processes: each encodes its share of the batches; the values are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.fake_run import features
from support.processes import run_together
from support.training import column, journal, take_part, with_settings

from vlcpctl.core.batch import Batch
from vlcpctl.distributed.world import World
from vlcpctl.testing.battery import BATCH, TrainingWorld, request
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training import validation
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.run import TrainRun
from vlcpctl.training.settings import Settings
from vlcpctl.training.train_step import train_step

pytestmark = pytest.mark.dist


def _request(world: TrainingWorld, root: Path, pairs: int) -> TrainRequest:
    task = make_task(root / "task", splits={"train": 12, "val": pairs})
    step = replace(request(world, "seqf", 0, root, buffered=False), tasks=(task,))
    return with_settings(step, keep="best:val_rmean", schedule="plateau", epochs=3)


@pytest.mark.parametrize("pairs", [3 * BATCH, BATCH])
def test_values_do_not_depend_on_the_number_of_processes(
    world: TrainingWorld, tmp_path: Path, pairs: int
) -> None:
    """With a single batch, one of the processes has none."""
    step = _request(world, tmp_path, pairs)
    train_step(replace(step, out=tmp_path / "one"))

    def act(rank: int) -> None:
        encoded: list[Batch] = []
        features = validation._features

        def counted(run: TrainRun, batch: Batch) -> Any:
            encoded.append(batch)
            return features(run, batch)

        validation._features = counted
        take_part(replace(step, out=tmp_path / "two"))
        batches = pairs // BATCH
        share = batches * (rank + 1) // 2 - batches * rank // 2
        assert len(encoded) == step.settings.epochs * share

    assert run_together(act) == [0, 0]
    for name in ("val_loss", "val_rmean"):
        one, two = (column(tmp_path / number, name) for number in ("one", "two"))
        assert len(one) == step.settings.epochs
        assert two == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("groups_B", [None, torch.arange(8) // 2])
def test_the_shares_of_local_loss_add_up(processes: int, groups_B: torch.Tensor | None) -> None:
    encoder = SimpleNamespace(weights=dict)  # without a bias: a softmax
    whole = TrainRun(
        encoder=encoder,  # type: ignore[arg-type]
        methods=(),
        settings=Settings(batch_size=8),
        seed=0,
        device=torch.device("cpu"),
    )
    local = replace(whole, local_loss=True, world=World(0, processes))
    draw = torch.Generator().manual_seed(0)
    out = features(*torch.randn(2, 8, 5, generator=draw))
    shares, at_once = (validation._loss(run, out, groups_B) for run in (local, whole))
    torch.testing.assert_close(shares, at_once)


def test_validation_follows_every_epoch_of_a_method_with_phases_of_its_own(
    world: TrainingWorld, tmp_path: Path
) -> None:
    """Its training has a plan for each epoch."""
    first = request(world, "afec", 0, tmp_path, buffered=False)
    train_step(with_settings(first, steps=1))
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 4})
    step = replace(request(world, "afec", 1, tmp_path, buffered=False), tasks=(task,))
    train_step(with_settings(step, epochs=2))
    assert [row["step"] for row in journal(step.out) if "val_loss" in row] == [2, 5]
