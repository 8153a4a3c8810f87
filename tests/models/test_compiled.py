"""--compile: the same losses, in both families, and one line where torch cannot compile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from support.training import column

from vlcpctl.core.errors import VlcpError
from vlcpctl.models.execution import compiled
from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.training.train_step import train_step


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("fuses", "parts"), [(False, None), (False, 2), (True, 2)])
def test_a_compiled_model_has_the_same_losses(
    world: TrainingWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: int | None,
    *,
    fuses: bool,
) -> None:
    """The trained pass and the frozen ones of ctp are captured, in micro-batches too.

    The captured graphs run as they are: on a busy machine g++ takes minutes for their kernels.
    """
    capture = partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", lambda function, **_: capture(function))
    have_same_losses(world, tmp_path, parts, fuses=fuses)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_compiled_kernels_give_the_same_losses(world: TrainingWorld, tmp_path: Path) -> None:
    have_same_losses(world, tmp_path, None, fuses=False)


def have_same_losses(
    world: TrainingWorld, tmp_path: Path, parts: int | None, *, fuses: bool
) -> None:
    if fuses:
        world = with_fusion_model(world)
    for name, compiles in (("plain", False), ("compiled", True)):
        for number in range(2):
            step = request(world, "ctp", number, tmp_path / name, buffered=False)
            settings = replace(step.settings, micro_batch=parts)
            train_step(replace(step, settings=settings, compile=compiles and number == 1))
    plain, fast = (column(tmp_path / name / "01", "loss") for name in ("plain", "compiled"))
    assert fast == pytest.approx(plain, rel=1e-5)


def test_what_torch_cannot_compile_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    def refuse(*_: object, **__: object) -> object:
        def fail(*_: object) -> object:
            raise BackendCompilerFailed("inductor", RuntimeError("no\nway"), None)

        return fail

    monkeypatch.setattr(torch, "compile", refuse)
    with pytest.raises(VlcpError, match=r"torch cannot compile the model: .*leave out --compile"):
        compiled(torch.square)(torch.ones(1))
