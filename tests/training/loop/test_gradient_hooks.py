"""The gradients that methods get when other methods add to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vlcpctl.core.method import Run
from vlcpctl.methods.si import Si
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.train_step import train_step

OTHER = "ewc"  # before SI in the order of names


def test_si_sees_the_loss_alone_whatever_penalty_another_method_adds(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At step 0 the penalty is 0, so both runs take the same step; at step 1 it pulls."""
    for method in ("si", f"{OTHER}+si"):
        train_step(request(world, method, 0, tmp_path / method, buffered=False))
    seen: list[dict[str, Tensor]] = []
    looked = Si.after_backward

    def look(self: Si, run: Run, grads: Mapping[str, Tensor]) -> None:
        if run.phase == "train" and run.step == 1:
            seen.append({name: grad.clone() for name, grad in grads.items()})
        looked(self, run, grads)

    monkeypatch.setattr(Si, "after_backward", look)
    for method in ("si", f"{OTHER}+si"):
        train_step(request(world, method, 1, tmp_path / method, buffered=False))
    alone, beside = seen
    assert all(torch.equal(alone[name], beside[name]) for name in alone)
    other = (tmp_path / f"{OTHER}+si" / "01" / "metrics.jsonl").read_text()
    assert f'"{OTHER}/penalty": 0.0' in other.splitlines()[0]
    assert f'"{OTHER}/penalty": 0.0' not in other.splitlines()[1]
