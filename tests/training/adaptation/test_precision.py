"""--precision auto: bf16 where the GPU has it, else fp32, and never imports torch without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vlcpctl.core import machine
from vlcpctl.training.adaptation import adapted_as_far_as_known
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import Settings


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
