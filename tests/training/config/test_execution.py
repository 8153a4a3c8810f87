"""Options that only change speed and last bits: where they have no effect, and where recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vlcpctl.core.devices import set_arithmetic
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.request import TrainRequest, numeric


@pytest.fixture
def step(world: TrainingWorld, tmp_path: Path) -> TrainRequest:
    return request(world, "seqf", 0, tmp_path, buffered=False)


def test_options_are_numeric_facts_only_where_they_are_given(step: TrainRequest) -> None:
    plain, all_set = (
        numeric(
            replace(step, compile=given, tf32=given, grad_checkpointing=given), torch.device("cpu")
        )
        for given in (False, True)
    )
    names = {"compile", "tf32", "grad_checkpointing"}
    assert not {*names, "cudnn"} & plain.keys()
    assert {name: all_set[name] for name in names} == dict.fromkeys(names, True)
    assert numeric(replace(step, cudnn="benchmark"), torch.device("cpu"))["cudnn"] == "benchmark"


def test_arithmetic_is_set_for_the_process() -> None:
    for tf32 in (True, False):  # as it is left at the end
        set_arithmetic(tf32=tf32)
        assert torch.backends.cuda.matmul.allow_tf32 is tf32
        assert torch.backends.cudnn.allow_tf32 is tf32
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark
    set_arithmetic(tf32=False, times_convolutions=True)
    assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.deterministic
    set_arithmetic(tf32=False)
