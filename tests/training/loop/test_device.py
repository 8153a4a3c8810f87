"""Whole runs on a pretended accelerator: no mix of devices, and few waits for it in a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fake_device import META, FakeDevice, pretend
from support.marks import mostly_slow
from support.training import with_settings
from torch import Tensor

from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Run
from vlcpctl.files.parts import Parts
from vlcpctl.methods import TABLE
from vlcpctl.methods.ema import Ema
from vlcpctl.models import encoders
from vlcpctl.models.embed import embed_images, embed_texts
from vlcpctl.models.execution import place
from vlcpctl.precompute import distill_plan
from vlcpctl.precompute.compute_options import ComputeOptions
from vlcpctl.precompute.distill import distill
from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training.loop import TrainingLoop
from vlcpctl.training.methods import compose
from vlcpctl.training.optimizers import Lamb, Optimizer, new_optimizer
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

# In both families, in phases that train and that measure, in every task, whole or in micro-batches.
NAMES = [*TABLE, "ctp+dha", "der+ctp", "ema+ewc", "lwf+si"]
# So that a queue is full and wraps, windows and intervals end, and texts are few.
SMALL = {
    "ctp": ["ctp.queue=8"],
    "dha": ["dha.every=2"],
    "rwalk": ["rwalk.every=2"],
    "incclip": ["incclip.count=6", "incclip.iterations=2"],
}
BATCH = 6

Families = pytest.mark.parametrize("fuses", [False, True], ids=["dual", "fusion"])


@pytest.fixture(scope="module", name="world")
def small(world: TrainingWorld) -> TrainingWorld:
    return replace(world, flags={**world.flags, "batch_size": BATCH, "epochs": 1})


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read values after each step."""
    monkeypatch.setattr("vlcpctl.training.loop.steps_per_read", lambda device: 1)


@dataclass
class Watched:
    """A pretended device, the waits of each step on it, and the optimizers of its runs."""

    device: FakeDevice
    waits: list[dict[str, int]] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)

    def train(
        self, step: TrainRequest, observe: Callable[[str], None] = lambda point: None
    ) -> None:
        """Train on the device, counting from one step to the next."""

        def count(point: str) -> None:
            if point.startswith("step="):
                self.waits.append(dict(self.device.syncs))
                self.check_optimizers()
            observe(point)
            self.device.syncs.clear()

        with self.device:
            train_step(step, count)

    def check_optimizers(self) -> None:
        """All states are where their weights are, but LAMB's counts, which the host reads."""
        for optimizer in self.optimizers:
            for values in optimizer.state.values():
                where = {name: value.device.type for name, value in values.items()}
                on_host = {"step"} if isinstance(optimizer, Lamb) else set()
                assert {name for name, place in where.items() if place != "meta"} == on_host


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    pretend(monkeypatch)
    found = Watched(FakeDevice())

    def made(*args: Any) -> Optimizer:
        found.optimizers.append(new_optimizer(*args))
        return found.optimizers[-1]

    loop_starts = TrainingLoop.train

    def train(loop: TrainingLoop, states: dict[str, dict[str, Tensor]]) -> Any:
        found.optimizers.clear()
        found.device.syncs.clear()  # those of loading
        return loop_starts(loop, states)

    monkeypatch.setattr("vlcpctl.training.loop.new_optimizer", made)
    monkeypatch.setattr(TrainingLoop, "train", train)
    return found


def step_of(
    world: TrainingWorld, names: str, number: int, root: Path, *, fuses: bool, **changes: Any
) -> TrainRequest:
    """One task, whose pairs are joined by those of a buffer after the first."""
    world = with_fusion_model(world) if fuses else world
    step = request(world, names, number, root, buffered=names != "joint")
    small = [one for name in names.split("+") for one in SMALL.get(name, ())]
    return with_settings(replace(step, methods=compose(names, small)), steps=number + 1, **changes)


# By default, methods that keep a queue, second models, importances, or generate texts.
OFTEN = {False: ("ctp", "ewc", "incclip"), True: ("ctp+dha",)}
CASES = [
    pytest.param(
        names,
        fuses,
        marks=[] if names in OFTEN[fuses] else pytest.mark.slow,
        id=f"{names}-{'fusion' if fuses else 'dual'}",
    )
    for names in NAMES
    for fuses in (False, True)
]


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize(("names", "fuses"), CASES)
def test_a_step_waits_once_to_read_its_values(
    world: TrainingWorld, tmp_path: Path, watched: Watched, names: str, *, fuses: bool
) -> None:
    """The first task; the second, with replayed pairs; and again in micro-batches with LAMB."""
    watched.train(step_of(world, names, 0, tmp_path, fuses=fuses))
    watched.train(step_of(world, names, 1, tmp_path, fuses=fuses))
    parts: dict[str, Any] = {"micro_batch": 2, "optimizer": "lamb", "clip_norm": 1.0}
    again = step_of(world, names, 1, tmp_path, fuses=fuses, **parts)
    watched.train(with_settings(replace(again, out=tmp_path / "parts"), steps=1))
    assert len(watched.waits) >= 4
    for waits in watched.waits:
        assert sum(waits.values()) == 1, waits


@pytest.mark.parametrize("fuses", mostly_slow([False, True], kept=[False]))
def test_values_are_read_once_in_several_steps(
    world: TrainingWorld,
    tmp_path: Path,
    watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fuses: bool,
) -> None:
    monkeypatch.setattr("vlcpctl.training.step.STEPS_PER_READ", 4)
    step = step_of(world, "ctp", 0, tmp_path, fuses=fuses)
    watched.train(with_settings(step, steps=5))
    counts = [sum(waits.values()) for waits in watched.waits]
    assert counts == [0, 0, 0, 1, 0]


class Stopped(Exception):
    """The run ends here, as if it were killed."""


@pytest.mark.parametrize(
    "case",
    mostly_slow(
        [(names, kind) for names in ("ctp", "afec") for kind in ("adamw", "sgd", "lamb")],
        kept=[("ctp", "adamw"), ("afec", "sgd"), ("afec", "lamb")],
    ),
    ids=str,
)
def test_a_resumed_run_has_its_state_on_the_device(
    world: TrainingWorld, tmp_path: Path, watched: Watched, case: tuple[str, str]
) -> None:
    names, optimizer = case

    def stop(point: str) -> None:
        if point == "saved":
            raise Stopped

    step = step_of(world, names, 0, tmp_path, fuses=names == "ctp", optimizer=optimizer)
    step = with_settings(replace(step, save_every="2"), steps=3, momentum=0.9)
    with pytest.raises(Stopped):
        watched.train(step, stop)
    watched.train(step)
    # A save comes before the point of its step, so the second step is not counted.
    assert len(watched.waits) == 2 + (2 if names == "afec" else 0)
    (found,) = watched.optimizers
    states = next(iter(found.state.values()))
    names_of = {"sgd": {"momentum_buffer"}}.get(optimizer, {"step", "exp_avg", "exp_avg_sq"})
    assert set(states) == names_of


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize(
    "case",
    mostly_slow(
        [(names, fuses) for names in ("lwf", "ctp", "incclip") for fuses in (False, True)],
        kept=[("ctp", False), ("lwf", True)],
    ),
    ids=str,
)
def test_targets_of_a_teacher_are_on_the_device(
    world: TrainingWorld, tmp_path: Path, watched: Watched, case: tuple[str, bool]
) -> None:
    names, fuses = case
    dual = {"lwf": ["lwf.words=false"]}
    watched.train(step_of(world, names, 0, tmp_path, fuses=fuses))
    step = step_of(world, names, 1, tmp_path, fuses=fuses)
    if fuses:
        methods = compose(names, [*SMALL.get(names, []), *dual.get(names, [])])
        step = replace(step, methods=methods)
    assert step.previous is not None
    asked = distill_plan.Distillation(
        tasks=step.tasks,
        buffer=step.buffer,
        teacher=step.previous,
        out=tmp_path / "targets",
        views=1,
    )
    options = ComputeOptions(batch_size=5, device="cpu", workers=0, threads=1, nproc=1)
    with watched.device:
        assert distill(asked, options, Parts(asked.out))
    watched.waits.clear()
    watched.train(replace(step, targets=tmp_path / "targets"))
    assert [sum(waits.values()) for waits in watched.waits] == [1, 1]


def test_validation_and_averaged_statistics_do_not_mix_devices(
    world: TrainingWorld, tmp_path: Path, watched: Watched
) -> None:
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 8})
    step = step_of(world, "ema", 0, tmp_path, fuses=False, keep="best:val_rmean")
    watched.train(replace(step, tasks=(task,)))


@pytest.mark.usefixtures("every_step")
def test_a_planted_read_is_counted(
    world: TrainingWorld, tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(self: Ema, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        term = out.image.sum()
        return {"planted": term * term.item()}, {}

    monkeypatch.setattr(Ema, "loss", loss)
    watched.train(step_of(world, "ema", 0, tmp_path, fuses=False))
    (waits,) = watched.waits
    assert sum(waits.values()) == 2
    # The innermost place in the package: the planted loss is in a test.
    assert "aten._local_scalar_dense in training/step.py:_loss" in waits


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as found:
        yield found


@Families
def test_embedding_reads_each_batch_once(device: FakeDevice, *, fuses: bool) -> None:
    encoder = encoders.build("albef-micro" if fuses else "micro")
    place(encoder.module, META)
    device.syncs.clear()
    images = [torch.zeros(3, 16, 16, 3, dtype=torch.uint8)] * 2
    assert embed_images(encoder, images).shape == (6, encoder.width)
    assert embed_texts(encoder, [["a cat"]] * 2).shape == (2, encoder.width)
    assert sum(device.syncs.values()) == 4, device.syncs
