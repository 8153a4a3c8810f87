"""A process lost in the middle of a step ends the run; another number of processes resumes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.processes import run_line, run_together
from support.training import column, with_settings
from torch import Tensor

from vlcpctl.core.errors import Incompatible
from vlcpctl.distributed.ranks import process_ranks
from vlcpctl.distributed.world import World
from vlcpctl.models.imports import preload
from vlcpctl.testing.battery import TrainingWorld, kill_at, request
from vlcpctl.training import launch
from vlcpctl.training import train_step as module
from vlcpctl.training.request import TrainRequest, numeric, opened, semantic
from vlcpctl.training.state import ResumeDirectory
from vlcpctl.training.train_step import train_step

pytestmark = pytest.mark.dist

SUMS_OF_A_STEP = 2  # its gradients fit one bucket; which weights were used is the second


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    preload()


def _words(world: TrainingWorld, out: Path, *more: object) -> list[object]:
    flags = {"--model": "micro", "--batch-size": 4, "--image-size": 16, "--steps": 6}
    given = [word for pair in flags.items() for word in pair]
    return ["train-step", world.tasks[0], "-o", out, "--method", "seqf", *given, *more]


def _die_while_summing(step: int) -> None:
    """In a child: let rank 1 be killed in this step, before it sends what rank 0 waits for."""
    start, started = World.start_sum, [0]

    def start_sum(self: World, flat: Tensor) -> Callable[[], None]:
        started[0] += 1
        if self.rank == 1 and started[0] > SUMS_OF_A_STEP * step:
            os.kill(os.getpid(), signal.SIGKILL)
        return start(self, flat)

    World.start_sum = start_sum  # type: ignore[method-assign]


def test_the_other_processes_end_with_one_line_and_the_same_line_resumes(
    world: TrainingWorld, tmp_path: Path
) -> None:
    """As torchrun starts them: nothing watches over them."""
    words = _words(world, tmp_path / "out", "--save-every", 1)

    def act(rank: int) -> None:
        _die_while_summing(3)
        run_line(words, tmp_path / f"log-{rank}")

    assert run_together(act) == [1, -signal.SIGKILL]
    told = (tmp_path / "log-0.err").read_text().splitlines()
    lines = [line for line in told if line.startswith("vlcpctl train-step:")]
    assert len(lines) == 1
    assert "another process of the run has ended" in lines[0]
    assert "Traceback" not in "".join(told)
    assert ResumeDirectory(tmp_path / "out").load()[0].step == 3  # type: ignore[index]

    assert run_together(lambda rank: run_line(words, tmp_path / f"log-{rank}")) == [0, 0]
    assert "resuming" in (tmp_path / "log-0.err").read_text()
    whole = _words(world, tmp_path / "whole")
    assert run_together(lambda rank: run_line(whole, tmp_path / f"log-{rank}")) == [0, 0]
    assert _bytes(tmp_path / "out") == _bytes(tmp_path / "whole")


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_processes_resumes_inexactly(
    world: TrainingWorld, tmp_path: Path, before: int, after: int
) -> None:
    step = request(world, "ctp", 0, tmp_path, buffered=False)
    step = with_settings(replace(step, save_every="1"), steps=6)
    train_step(replace(step, out=tmp_path / "whole"))
    _train(replace(step, nproc=before), dies=True)
    with pytest.raises(Incompatible, match=f"processes.*{before}.*{after}.*--accept-inexact"):
        _refused(replace(step, nproc=after))
    _train(replace(step, nproc=after, accept_inexact=True))
    assert column(step.out, "loss") == pytest.approx(column(tmp_path / "whole", "loss"), rel=1e-5)


def _train(step: TrainRequest, *, dies: bool = False) -> None:
    """Train in the number of processes of the request, or until the last of them is killed."""

    def act(rank: int) -> None:
        here = process_ranks()
        last = rank == step.nproc - 1
        observe = kill_at("step=2") if dies and last else lambda point: None
        if step.nproc == 1:
            train_step(step, observe)
            return
        assert here is not None
        train = module.train_step
        module.train_step = lambda *given, **how: train(*given, observe=observe, **how)
        launch.take_part(step, here)

    codes = run_together(act, step.nproc)
    assert codes[-1] == (-signal.SIGKILL if dies else 0)
    assert codes[:-1] == [1 if dies else 0] * (step.nproc - 1)


def _refused(step: TrainRequest) -> None:
    """Try to resume as process 0 would, which checks before the others may read the state."""
    ResumeDirectory(step.out).claim(
        semantic(step, opened(step)),
        numeric(step, torch.device("cpu")),
        force=False,
        accept_inexact=step.accept_inexact,
    )


def _bytes(checkpoint: Path) -> list[bytes]:
    return [(checkpoint / name).read_bytes() for name in ("open_clip_model.safetensors",)]
