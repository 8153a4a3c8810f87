"""Measuring phases inside a real train-step: what they run on, and what they leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file
from support.marks import mostly_slow
from support.training import journal, resnet, with_settings
from torch import Tensor

from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import TRAIN, Method, Phase, Run, Slot
from vlcpctl.core.params import copy_, copy_of
from vlcpctl.methods.si import Si
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import make_plan
from vlcpctl.training.train_step import train_step

HELD = ["ewc", "mas", "si", "rwalk"]


def _trained(
    world: TrainingWorld, root: Path, name: str, *, tasks: int, **settings: object
) -> Path:
    for number in range(tasks):
        step = request(world, name, number, root, buffered=False)
        methods = tuple(
            replace(part, strength=0.0) if name in HELD else part  # type: ignore[call-arg]
            for part in compose(name)
        )
        train_step(with_settings(replace(step, methods=methods), **settings))
    return root / f"{tasks - 1:02d}"


@pytest.mark.parametrize("name", mostly_slow(["ewc", "mas"], kept=["ewc"]))
def test_measuring_leaves_the_statistics_of_batch_norm_alone(
    world: TrainingWorld, tmp_path: Path, name: str
) -> None:
    how = resnet(tmp_path)
    measured = _trained(world, tmp_path / "measured", name, tasks=1, **how)
    plain = _trained(world, tmp_path / "plain", "seqf", tasks=1, **how)
    assert (measured / WEIGHTS).read_bytes() == (plain / WEIGHTS).read_bytes()
    assert any("running_mean" in key for key in load_file(plain / WEIGHTS))


@pytest.mark.parametrize("name", HELD)
def test_penalty_is_0_at_the_first_step_and_grows(
    world: TrainingWorld, tmp_path: Path, name: str
) -> None:
    for number in range(2):
        train_step(request(world, name, number, tmp_path, buffered=False))
    penalties = [row[f"{name}/penalty"] for row in journal(tmp_path / "01", "train")]
    assert penalties[0] == 0
    assert all(penalty > 0 for penalty in penalties[1:])
    assert not any(f"{name}/penalty" in row for row in journal(tmp_path / "00", "train"))


def test_another_teacher_does_not_move_what_weights_are_held_near(
    world: TrainingWorld, tmp_path: Path
) -> None:
    train_step(request(world, "ewc", 0, tmp_path, buffered=False))
    other = request(world, "seqf", 0, tmp_path / "seed1", buffered=False)
    train_step(replace(other, seed=1))
    step = request(world, "ewc+lwf", 1, tmp_path, buffered=False)
    rows = {}
    for name, teacher in (("own", None), ("other", tmp_path / "seed1" / "00")):
        out = tmp_path / name
        train_step(replace(step, teacher=teacher, out=out))
        rows[name] = journal(out, "train")[0]
    assert rows["own"]["ewc/penalty"] == rows["other"]["ewc/penalty"] == 0
    assert rows["own"]["lwf/distill"] != rows["other"]["lwf/distill"]


def test_each_measuring_phase_has_its_own_loss(world: TrainingWorld, tmp_path: Path) -> None:
    train_step(request(world, "ewc+mas", 0, tmp_path, buffered=False))
    common = {"phase", "step", "loss", "lr"}
    terms = {
        phase: {key for row in journal(tmp_path / "00", phase) for key in row} - common
        for phase in ("ewc/importance", "mas/importance")
    }
    assert terms == {"ewc/importance": {"contrastive"}, "mas/importance": {"mas/length"}}


def test_fp16_measures_what_single_precision_does(world: TrainingWorld, tmp_path: Path) -> None:
    fisher = {}
    for precision in ("fp32", "fp16"):
        out = _trained(world, tmp_path / precision, "ewc", tasks=1, precision=precision, lr=1e-9)
        fisher[precision] = load_file(out / "method" / "ewc" / "fisher.safetensors")
    torch.testing.assert_close(fisher["fp16"], fisher["fp32"], rtol=1e-3, atol=1e-9)
    assert fisher["fp16"]["visual.proj"].any()


@pytest.mark.parametrize(("steps", "begins"), [(None, 6), (4, 6), (6, 6), (7, 9)])
def test_measuring_reads_the_first_epoch_that_was_not_trained_on(
    world: TrainingWorld, tmp_path: Path, steps: int | None, begins: int
) -> None:
    step = request(world, "ewc+mas", 0, tmp_path, buffered=False)
    phases = make_plan(with_settings(step, steps=steps)).phases
    assert [(phase.name, phase.start, phase.steps) for phase in phases] == [
        ("train", 0, steps or 6),
        ("ewc/importance", begins, 3),
        ("mas/importance", begins, 3),
    ]


@dataclass(frozen=True)
class Probe(Method):
    """Keeps the weights that it measures, and their values when training ended."""

    name: ClassVar[str] = "probe"

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        return tuple(
            Slot(name=name, lifetime="stream", start=lambda run: copy_of(run.weights))
            for name in ("measured", "last")
        )

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        return (TRAIN, Phase(name="look", epochs=1, trains=False))

    def after_step(self, run: Run, batch: Batch, aux: object, *, stepped: bool) -> None:
        assert stepped is (run.phase == "train")
        copy_(run.slot("last" if run.phase == "train" else "measured"), run.weights)


def test_the_best_weights_are_measured_where_the_best_are_kept(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "seqf", 0, tmp_path, buffered=False)
    step = replace(
        step,
        tasks=(make_task(tmp_path / "task", splits={"train": 12, "val": 8}),),
        methods=(Probe(),),
        settings=replace(step.settings, keep="best:val_loss", epochs=3, lr=0.3),
    )
    train_step(step)
    kept = load_file(step.out / WEIGHTS)
    measured, last = (
        load_file(step.out / "method" / "probe" / f"{name}.safetensors")
        for name in ("measured", "last")
    )
    assert all(torch.equal(kept[name], measured[name]) for name in measured)
    assert any(not torch.equal(kept[name], last[name]) for name in last)


@dataclass(frozen=True)
class Aside(Method):
    """Trains weights of its own before each epoch, and nothing else."""

    name: ClassVar[str] = "aside"

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        return (Slot(name="own", lifetime="stream", start=lambda run: copy_of(run.everything)),)

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        return (Phase(name="away", each_epoch=True, weights="own"), TRAIN)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, Terms]:
        if run.phase == TRAIN.name:
            return {}, {}
        return {"size": torch.stack([one.square().sum() for one in run.weights.values()]).sum()}, {}


def test_a_phase_with_weights_of_its_own_leaves_the_model_alone(
    world: TrainingWorld, tmp_path: Path
) -> None:
    found = []
    for name, methods in (("plain", compose("seqf")), ("aside", (Aside(),))):
        step = replace(request(world, "seqf", 0, tmp_path, buffered=False), methods=methods)
        found.append(
            train_step(with_settings(replace(step, out=tmp_path / name), epochs=2, lr=0.3))
        )
    plain, beside = (load_file(checkpoint / WEIGHTS) for checkpoint in found)
    own = load_file(found[1] / "method" / "aside" / "own.safetensors")
    assert all(torch.equal(plain[name], beside[name]) for name in plain)
    assert any(not torch.equal(plain[name], own[name]) for name in plain)


OTHER = "ewc"  # before SI in the order of names


def test_si_sees_the_loss_alone_whatever_penalty_another_method_adds(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At step 0 the penalty is 0, so both runs take the same step; at step 1 it pulls."""
    for method in ("si", f"{OTHER}+si"):
        train_step(request(world, method, 0, tmp_path / method, buffered=False))
    seen: list[dict[str, Tensor]] = []
    looked = Si.after_backward

    def look(self: Si, run: Run, grads: Mapping[str, Tensor]) -> None:
        if run.phase == "train" and run.step == 1:
            seen.append({name: grad.clone() for name, grad in grads.items()})
        looked(self, run, grads)

    monkeypatch.setattr(Si, "after_backward", look)
    for method in ("si", f"{OTHER}+si"):
        train_step(request(world, method, 1, tmp_path / method, buffered=False))
    alone, beside = seen
    assert all(torch.equal(alone[name], beside[name]) for name in alone)
    other = (tmp_path / f"{OTHER}+si" / "01" / "metrics.jsonl").read_text()
    assert f'"{OTHER}/penalty": 0.0' in other.splitlines()[0]
    assert f'"{OTHER}/penalty": 0.0' not in other.splitlines()[1]
