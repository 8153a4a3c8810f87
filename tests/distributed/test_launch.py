"""Which device each of several processes gets, and how the launcher gets their errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from vlcpctl.core.errors import Diverged, UsageError
from vlcpctl.distributed import launch
from vlcpctl.distributed.launch import process_device, reporting_errors
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


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Diverged("the loss diverged"), 8, "the loss diverged"),
        (RuntimeError("CUDA out of memory. Tried.\nMore"), 1, "(CUDA out of memory. Tried.); see "),
    ],
)
def test_an_error_of_a_process_is_passed_on_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, message: str
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(SystemExit) as ended, reporting_errors():
        raise error
    record = json.loads((tmp_path / "error.json").read_text())
    assert (ended.value.code, record["code"]) == (code, code)
    assert message in record["message"]
    assert "\n" not in record["message"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_on_a_full_disk_the_exit_code_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "error.json").symlink_to("/dev/full")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(SystemExit) as ended, reporting_errors():
        raise Diverged("the loss diverged")
    assert ended.value.code == 8
    assert list(tmp_path.iterdir()) == []  # torch's launcher cannot read an empty file


def test_a_mistake_in_the_program_is_left_to_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(RuntimeError, match="shapes differ"), reporting_errors():
        raise RuntimeError("shapes differ")
    assert list(tmp_path.iterdir()) == []
