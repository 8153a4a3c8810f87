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
    with pytest.raises(UsageError, match="--device gpu is not a device; use auto, cpu or cuda"):
        torch_device("gpu")
