"""Training in two processes: numbers as in one process; one result, error and exit code."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.marks import mostly_slow
from support.processes import exit_code_of, run_line, run_together, start_child, wait_until
from support.training import column, model_file, resnet, take_part, train_together, with_settings
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from vlcpctl.distributed.ranks import process_ranks
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.models.imports import preload
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training import train_step as train
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.run import TrainRun
from vlcpctl.training.train_step import train_step

pytestmark = pytest.mark.dist


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    preload()  # what each process would import again
    with pytest.MonkeyPatch.context() as patch:
        # For a log that nobody reads, it looks through all modules at each step of a rendezvous.
        patch.setattr(dynamic_rendezvous, "get_method_name", lambda _depth=0: "")
        yield


@pytest.fixture(scope="module")
def first(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first task's checkpoint, 00."""
    root = tmp_path_factory.mktemp("first")
    step = request(world, "seqf", 0, root, buffered=False)
    train_step(with_settings(step, temperature="learn:0.1"))
    return root


@pytest.mark.parametrize("names", mostly_slow(["ewc", "mas"], kept=["ewc"]))
def test_importances_do_not_depend_on_the_number_of_processes(
    world: TrainingWorld, tmp_path: Path, names: str
) -> None:
    _expect_equal(request(world, names, 0, tmp_path, buffered=False), tmp_path)
    slots = [sorted((tmp_path / name / "method").rglob("*.safetensors")) for name in ("one", "two")]
    for one, two in zip(*slots, strict=True):
        kept, also = load_file(one), load_file(two)
        for name, tensor in kept.items():
            torch.testing.assert_close(also[name], tensor, rtol=1e-4, atol=1e-6)


def test_what_is_drawn_for_a_pair_is_drawn_in_any_process(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "seqf", 0, tmp_path, buffered=False)
    shape = {"image_size": 16, "layers": 1, "width": 8, "head_width": 4, "patch_size": 4}
    model = model_file(tmp_path, vision_cfg={**shape, "patch_dropout": 0.5})
    _expect_equal(with_settings(step, model=str(model), image_size=None), tmp_path)


def test_batch_norms_count_micro_batches_as_they_count_processes(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "seqf", 0, tmp_path, buffered=False)
    _expect_equal(with_settings(step, **resnet(tmp_path), steps=2), tmp_path)
    counts = load_file(tmp_path / "one" / WEIGHTS)["visual.bn1.num_batches_tracked"]
    assert counts == 2  # one for each step


def _expect_equal(step: TrainRequest, root: Path) -> None:
    """Half of the batch in each of two processes, or both halves in one process."""
    step = with_settings(
        step, micro_batch=2, optimizer="sgd", lr=0.1
    )  # adam would hide a wrong scale
    train_step(replace(step, out=root / "one"))
    train_together(replace(step, out=root / "two"))
    one, two = (load_file(next((root / name).glob("*.safetensors"))) for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-5, atol=1e-7)
    losses = [column(root / name, "loss") for name in ("one", "two")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def _trained(step: TrainRequest, keep: Callable[[TrainRun], dict[str, torch.Tensor]]) -> list[Any]:
    """The state of each of two processes after training."""

    def act(rank: int) -> None:
        made, new_run = [], train._new_run
        train._new_run = lambda *given: made.append(new_run(*given)) or made[-1]  # type: ignore[func-returns-value]
        take_part(step)
        save_file(keep(made[0]), f"{step.out}-{rank}")

    assert run_together(act) == [0, 0]
    return [load_file(f"{step.out}-{rank}") for rank in range(2)]


def test_every_process_has_the_same_batch_norm_statistics(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "seqf", 0, tmp_path, buffered=False)
    step = with_settings(step, **resnet(tmp_path), steps=2)
    one, other = _trained(step, TrainRun.everything)
    assert any(name.endswith("running_var") for name in one)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_validation_decides_is_decided_alike(world: TrainingWorld, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 8})
    step = replace(request(world, "seqf", 0, tmp_path, buffered=False), tasks=(task,))
    step = with_settings(step, schedule="plateau", patience=0, epochs=3)
    progress = iter([3.0, 2.0, 1.0])

    def validate(*_: object, **__: object) -> dict[str, float]:
        here = process_ranks()
        assert here is not None
        return {"val_loss": next(progress) if here.rank else 1.0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlcpctl.training.validation.validate", validate)
        one, other = _trained(step, TrainRun.everything)
    assert all(torch.equal(one[name], other[name]) for name in one)
    rates = column(step.out, "lr")
    assert rates[-1] == pytest.approx(rates[0] / 10)


def test_a_gradient_that_one_process_lacks_is_zero_there(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    step = replace(request(world, "seqf", 1, first, buffered=False), out=tmp_path / "out")

    def act(rank: int) -> None:
        encode = TrainRun.encode

        def without_texts(run: TrainRun, *given: Any) -> Any:
            image, text = encode(run, *given)
            return image, text.detach().requires_grad_()

        if rank == 1:
            TrainRun.encode = without_texts  # type: ignore[method-assign]
        take_part(step)

    assert run_together(act) == [0, 0]


def _words(world: TrainingWorld, out: Path, *more: object) -> list[object]:
    flags = {"--model": "micro", "--batch-size": 4, "--image-size": 16, "--lr": 0.01}
    given = [word for pair in flags.items() for word in pair]
    return ["train-step", world.tasks[0], "-o", out, "--method", "ctp", *given, *more]


def _bytes(checkpoint: Path) -> list[bytes]:
    return [(checkpoint / name).read_bytes() for name in (WEIGHTS, "metrics.jsonl")]


def test_sigterm_saves_and_the_same_line_ends_as_if_never_stopped(
    world: TrainingWorld, tmp_path: Path
) -> None:
    many = ("--steps", 30, "--save-every", 5)
    log, out = tmp_path / "log", tmp_path / "stopped"
    launched = _words(world, out, *many, "--nproc", 2)
    pid = start_child(lambda _: run_line(launched, log))
    wait_until((tmp_path / ".stopped.vlcpctl/partial/state.safetensors").exists)
    os.kill(pid, signal.SIGTERM)
    assert exit_code_of(pid) == 75
    assert log.with_suffix(".out").read_text() == ""
    assert log.with_suffix(".err").read_text().count("vlcpctl train-step: stopped after step") == 1
    assert exit_code_of(start_child(lambda _: run_line(launched, log))) == 0
    assert log.with_suffix(".out").read_text() == f"{out}\n"
    assert log.with_suffix(".err").read_text().count("resuming") == 1

    whole = _words(world, tmp_path / "whole", *many)
    assert run_together(lambda rank: run_line(whole, tmp_path / f"log-{rank}")) == [0, 0]
    told = [(tmp_path / f"log-{rank}.out").read_text() for rank in range(2)]
    assert told == [f"{tmp_path / 'whole'}\n", ""]
    assert _bytes(out) == _bytes(tmp_path / "whole")

    assert exit_code_of(start_child(lambda _: run_line(launched, log))) == 0
    assert log.with_suffix(".out").read_text() == f"{out}\n"
    assert log.with_suffix(".err").read_text() == ""


def test_divergence_in_every_process_is_told_once(world: TrainingWorld, tmp_path: Path) -> None:
    words = _words(world, tmp_path / "out", "--nproc", 2, "--lr", 1e30, "--schedule", "constant")
    assert exit_code_of(start_child(lambda _: run_line(words, tmp_path / "log"))) == 8
    told = (tmp_path / "log.err").read_text()
    assert told.count("the loss diverged at step") == 1
    assert "Traceback" not in told
