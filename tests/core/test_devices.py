"""The device that an option names, on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch

from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import UsageError


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_auto_is_the_cpu() -> None:
    assert torch_device("auto") == torch_device("cpu") == torch.device("cpu")


def test_an_absent_gpu_is_an_error() -> None:
    with pytest.raises(UsageError, match="--device cuda: CUDA is not available"):
        torch_device("cuda")


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(
        UsageError, match="--device gpu is not a device; use auto, cpu, cuda or cuda:N"
    ):
        torch_device("gpu")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cuda:x", "--device cuda:x is not a device"),
        ("cuda0", "--device cuda0 is not a device"),
        ("cuda:-1", "--device cuda:-1 is not a device"),
        ("cuda:2", "--device cuda:2: this machine has only cuda:0 to cuda:1"),
    ],
)
def test_a_gpu_that_is_not_there_is_an_error(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_device("cuda:1") == torch.device("cuda:1")
    assert torch_device("cuda") == torch.device("cuda")
    with pytest.raises(UsageError, match=said):
        torch_device(name)
