"""Options that only change speed and last bits: where they have no effect, and where recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vlcpctl.core import machine
from vlcpctl.core.devices import set_arithmetic
from vlcpctl.core.errors import UsageError
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.checks import check_execution
from vlcpctl.training.plan import lines, make_plan
from vlcpctl.training.request import TrainRequest, numeric


@pytest.fixture
def step(world: TrainingWorld, tmp_path: Path) -> TrainRequest:
    return request(world, "seqf", 0, tmp_path, buffered=False)


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DRIVERS", ("/",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


@pytest.mark.usefixtures("a_gpu")
def test_tf32_needs_a_gpu_that_has_it(step: TrainRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    check_execution(replace(step, tf32=True))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    with pytest.raises(UsageError, match="this GPU is older than TF32"):
        check_execution(replace(step, tf32=True))


@pytest.mark.usefixtures("a_gpu")
def test_cudnn_may_choose_by_a_trial_on_a_gpu(
    step: TrainRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = replace(step, cudnn="benchmark")
    check_execution(timed)
    assert numeric(timed, torch.device("cpu"))["cudnn"] == "benchmark"
    assert "fp32, cudnn benchmark" in "\n".join(lines(make_plan(timed)))
    monkeypatch.setattr(machine, "DRIVERS", ())
    with pytest.raises(UsageError, match="--cudnn has no effect: only GPUs use cuDNN, and"):
        check_execution(timed)


def test_compile_needs_a_compiler(
    step: TrainRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UsageError, match=r"--compile needs a C compiler, but g\+\+ cannot be"):
        make_plan(replace(step, compile=True))
    monkeypatch.setenv("CXX", "/bin/sh")
    make_plan(replace(step, compile=True))


@pytest.mark.usefixtures("a_gpu")
def test_the_plan_of_a_gpu_has_its_workers_and_precision(
    step: TrainRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "own_cores", lambda: 6)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    on_gpu = replace(step, settings=replace(step.settings, precision="auto"), tf32=True)
    assert "  device cuda, 5 workers (auto), bf16, TF32" in list(lines(make_plan(on_gpu)))


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
