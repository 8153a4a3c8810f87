"""Options that only change speed and last bits: where they are recorded, and --precision auto."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vlcpctl.core import machine
from vlcpctl.core.devices import set_arithmetic
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.adaptation import adapted_as_far_as_known
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest, numeric
from vlcpctl.training.settings import Settings


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


def resolved(device: str, wanted: str = "auto") -> str:
    step = TrainRequest(
        tasks=(Path("task"),),
        out=Path("out"),
        methods=compose("seqf"),
        settings=Settings(precision=wanted),
        device=device,
    )
    return adapted_as_far_as_known(step).settings.precision


@pytest.mark.parametrize(
    ("device", "available", "has_bf16", "expected"),
    [
        ("auto", True, True, "bf16"),
        ("cuda", True, True, "bf16"),
        ("cuda:1", True, False, "fp32"),
        ("auto", False, True, "fp32"),
        ("cpu", True, True, "fp32"),
    ],
)
def test_it_is_what_the_device_has(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    expected: str,
    *,
    available: bool,
    has_bf16: bool,
) -> None:
    monkeypatch.setattr(machine, "DRIVERS", ("/",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: has_bf16)
    assert resolved(device) == expected


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DRIVERS", ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: 1 / 0)
    assert resolved("auto") == "fp32"
