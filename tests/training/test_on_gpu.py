"""Training on a real GPU: the losses of the CPU, with every option."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training import column

from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.training.train_step import train_step

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def needs_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")


def trained(world: TrainingWorld, root: Path, method: str, **how: Any) -> Path:
    """The checkpoint of the second task, trained on the device."""
    for number in range(2):
        step = request(world, method, number, root, buffered=False, **how)
        out = train_step(step)
    return out


@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("method", ["seqf", "ctp", "der", "co2l", "ewc"])
def test_losses_are_those_of_the_cpu(
    world: TrainingWorld, tmp_path: Path, method: str, *, fuses: bool
) -> None:
    world = with_fusion_model(world) if fuses else world
    # Dropout draws other masks on a GPU.
    if fuses:
        flags = {name: one for name, one in world.flags.items() if name != "epochs"}
        world = replace(world, flags={**flags, "steps": 1})
    on_cpu = column(trained(world, tmp_path / "cpu", method, device="cpu"), "loss")
    on_gpu = column(trained(world, tmp_path / "gpu", method, device="cuda"), "loss")
    assert on_gpu == pytest.approx(on_cpu, rel=0.5 if fuses else 1e-3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("option", ["tf32", "grad_checkpointing", "compile"])
def test_options_change_the_last_bits_at_most(
    world: TrainingWorld, tmp_path: Path, option: str, workers: int
) -> None:
    plain = column(trained(world, tmp_path / "plain", "ctp", device="cuda"), "loss")
    how: dict[str, Any] = {option: True, "workers": workers}
    other = column(trained(world, tmp_path / "other", "ctp", device="cuda", **how), "loss")
    assert other == pytest.approx(plain, rel=2e-2 if option == "tf32" else 1e-3)


def test_bf16_is_close(world: TrainingWorld, tmp_path: Path) -> None:
    plain = column(trained(world, tmp_path / "fp32", "ctp", device="cuda"), "loss")
    half = replace(world, flags={**world.flags, "precision": "bf16"})
    rounded = column(trained(half, tmp_path / "bf16", "ctp", device="cuda"), "loss")
    assert rounded[0] == pytest.approx(plain[0], rel=2e-2)
    assert rounded == pytest.approx(plain, rel=0.2)  # each update is of rounded gradients


def test_the_number_of_workers_changes_no_byte(world: TrainingWorld, tmp_path: Path) -> None:
    made = [
        trained(world, tmp_path / str(workers), "seqf", device="cuda", workers=workers)
        for workers in (0, 3)
    ]
    assert (made[0] / "metrics.jsonl").read_bytes() == (made[1] / "metrics.jsonl").read_bytes()
