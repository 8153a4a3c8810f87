"""The device that an option names, on a machine without a GPU, and what decides its last bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vlcpctl.core import devices
from vlcpctl.core.devices import arithmetic_facts, torch_device
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


PROCESSOR = """\
processor\t: 0
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
flags\t\t: fpu sse4_2 avx2 avx

processor\t: 1
model name\t: AMD EPYC
"""


def _of(monkeypatch: pytest.MonkeyPatch, place: Path, text: str) -> dict[str, Any]:
    place.write_text(text)
    monkeypatch.setattr(devices, "_CPUINFO", place)
    return arithmetic_facts(torch.device("cpu"))


def test_a_processor_is_known_by_name_model_and_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = _of(monkeypatch, tmp_path / "cpuinfo", PROCESSOR)
    assert facts["device"] == "AMD EPYC (cpu family 25, model 1)"
    assert facts["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert facts["vectors"] == "avx avx2 sse4_2"
    for old, new in (("model\t\t: 1", "model\t\t: 17"), ("avx2 avx", "avx2 avx avx512f")):
        assert _of(monkeypatch, tmp_path / "cpuinfo", PROCESSOR.replace(old, new)) != facts
    monkeypatch.setattr(devices, "_CPUINFO", tmp_path / "none")  # another system than Linux
    assert arithmetic_facts(torch.device("cpu"))["device"]


def test_versions_of_libraries_and_their_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = arithmetic_facts(torch.device("cpu"))
    names = {"torch", "pillow", "numpy", "open_clip_torch", "timm", "transformers", "tokenizers"}
    assert facts["versions"].keys() == names
    assert facts["versions"]["torch"] == torch.__version__
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    found = {"environment": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}
    assert arithmetic_facts(torch.device("cpu")) == {**facts, **found}


def test_the_gpu_of_the_device_counts_and_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device}")
    facts = arithmetic_facts(torch.device("cuda:1"))
    assert (facts["device"], "vectors" in facts) == ("GPU cuda:1", False)
