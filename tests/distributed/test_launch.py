"""Which device each of several processes gets."""

from __future__ import annotations

import pytest
import torch

from vlcpctl.core.errors import UsageError
from vlcpctl.distributed import launch
from vlcpctl.distributed.launch import process_device
from vlcpctl.distributed.ranks import ProcessRanks


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "torch_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("_two_gpus")
def test_each_process_of_a_machine_has_a_gpu_of_its_own() -> None:
    found = [process_device("cuda", ProcessRanks(2 + rank, 4, rank)) for rank in range(2)]
    assert found == [torch.device("cuda:0"), torch.device("cuda:1")]
    with pytest.raises(UsageError, match="2 CUDA devices for at least 3 processes"):
        process_device("cuda", ProcessRanks(2, 3, 2))


@pytest.mark.usefixtures("_two_gpus")
def test_one_gpu_is_not_for_several_processes() -> None:
    with pytest.raises(UsageError, match="--device cuda:1 names one GPU, but each of 2 processes"):
        process_device("cuda:1", ProcessRanks(0, 2, 0))


def test_all_processes_share_the_cpu() -> None:
    assert process_device("cpu", ProcessRanks(1, 2, 1)) == torch.device("cpu")
