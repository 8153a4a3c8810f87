"""train-step --targets: losses equal to the live teacher's; targets that do not fit are refused."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.marks import mostly_slow
from support.training import column, journal, train_together, with_settings

from vlcpctl.core.batch import Batch, Features
from vlcpctl.core.errors import Incompatible, OutputExists, UsageError
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files.parts import Parts
from vlcpctl.methods import TABLE
from vlcpctl.models import encoders
from vlcpctl.precompute import distill_plan
from vlcpctl.precompute.compute_options import ComputeOptions
from vlcpctl.precompute.distill import distill
from vlcpctl.testing.battery import (
    TrainingWorld,
    checkpoint_bytes,
    in_child,
    kill_at,
    request,
    with_fusion_model,
)
from vlcpctl.testing.tiny_stream import make_pair, make_task
from vlcpctl.training.method_run import MethodRun
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.run import TrainRun
from vlcpctl.training.train_step import train_step

EPOCHS = 3
VARIED = {"crop": "random", "flip": True, "randaugment": (1, 5), "epochs": EPOCHS}
MEANS = ComputeOptions(batch_size=5, device="cpu", workers=0, threads=1, nproc=1)
NEEDS = {name: method().needs(first=False) for name, method in TABLE.items()}
# Targets are of the pairs to learn.
TEACHABLE = [name for name, need in NEEDS.items() if need.previous and not need.reference]


@pytest.fixture(scope="module", name="world")
def varied(world: TrainingWorld) -> TrainingWorld:
    return replace(world, flags={**world.flags, **VARIED})


@pytest.fixture(scope="module")
def first(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first task's checkpoint, 00."""
    root = tmp_path_factory.mktemp("first")
    train_step(request(world, "seqf", 0, root, buffered=False))
    return root


@pytest.fixture(scope="module")
def first_fused(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fused")
    train_step(request(with_fusion_model(world), "seqf", 0, root, buffered=False))
    return root


def second(
    world: TrainingWorld, root: Path, names: str, *options: str, buffered: bool = False
) -> TrainRequest:
    """The step of the second task."""
    step = request(world, names, 1, root, buffered=buffered)
    methods = compose(names, options)
    slots = [slot for method in methods for slot in method.slots(first=False)]
    fresh = any(slot.lifetime == "stream" for slot in slots)  # the first task was trained by seqf
    return replace(step, methods=methods, fresh_state=fresh)


def targets_of(step: TrainRequest, out: Path, views: int = EPOCHS, seed: int = 0) -> Path:
    """The teacher features of a run's pairs."""
    assert step.previous is not None
    asked = distill_plan.Distillation(
        tasks=step.tasks,
        buffer=step.buffer,
        teacher=step.teacher or step.previous,
        out=out,
        views=views,
        augmentation={name: getattr(step.settings, name) for name in distill_plan.AUGMENTATION},
        seed=seed,
    )
    assert distill(asked, MEANS, Parts(asked.out))
    return out


def losses(step: TrainRequest) -> list[dict[str, Any]]:
    train_step(step)
    return [{n: v for n, v in row.items() if n != "phase"} for row in journal(step.out)]


def expect_same(step: TrainRequest, targets: Path, root: Path) -> None:
    """The loss terms of a live teacher and of targets."""
    live = losses(replace(step, out=root / "live"))
    taught = losses(replace(step, out=root / "taught", targets=targets))
    assert len(live) == len(taught) >= EPOCHS * 3
    for one, other in zip(live, taught, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-6, abs=1e-6)
        # A divergence near 0 is a sum of terms that are not, times twenty in modx.
        assert other == pytest.approx(one, rel=1e-6, abs=5e-6)


def _several(number: int) -> Pair:
    words = ["red", "a green", "some blue"][: 1 + number % 3]
    return make_pair(number)._replace(captions=[f"{word} {number}" for word in words])


@pytest.mark.parametrize(
    "case",
    mostly_slow(
        [
            *(("dual", names) for names in TEACHABLE),
            *(("buffered", names) for names in ("ctp", "lwf+modx")),
            *(("fusion", names) for names in ("ctp", "lwf")),
            *((captions, "modx") for captions in ("one", "all")),  # of several
        ],
        kept=[("dual", "lucir"), ("buffered", "ctp"), ("fusion", "lwf"), ("all", "modx")],
    ),
    ids="-".join,
)
def test_with_a_view_for_each_epoch_a_run_has_the_losses_of_the_live_teacher(
    world: TrainingWorld, first: Path, first_fused: Path, tmp_path: Path, case: tuple[str, str]
) -> None:
    kind, names = case
    if kind == "fusion":
        options = ("lwf.words=false",) if names == "lwf" else ()
        step = second(with_fusion_model(world), first_fused, names, *options)
    else:
        step = second(world, first, names, buffered=kind == "buffered")
    if kind in ("one", "all"):
        task = make_task(tmp_path / "task", 12, step=1, first=500, pair=_several)
        step = with_settings(replace(step, tasks=(task,)), captions=kind)
    expect_same(step, targets_of(step, tmp_path / "targets"), tmp_path)


@pytest.mark.parametrize("views", [1, 2])
def test_visit_n_sees_view_n_mod_the_views(
    world: TrainingWorld, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, views: int
) -> None:
    """Targets in a batch equal the live teacher's features of the same images."""
    step = second(world, first, "modx")
    targets = targets_of(step, tmp_path / "targets", views=views, seed=5)
    teacher = encoders.load(first / "00")
    weights = {**teacher.weights(), **teacher.buffers()}
    seen: list[Batch] = []

    def compared(run: TrainRun, batch: Batch) -> Features:
        seen.append(batch)
        found = taught(run, batch)
        with torch.no_grad():
            live = run.frozen_features(batch, weights)
        for name in ("raw_image", "raw_text", "image", "text", "scale"):
            torch.testing.assert_close(
                getattr(found, name), getattr(live, name), rtol=1e-6, atol=1e-6
            )
        return found

    taught = TrainRun.previous_features
    monkeypatch.setattr(TrainRun, "previous_features", compared)
    train_step(replace(step, out=tmp_path / "run", targets=targets))
    images: dict[str, set[bytes]] = {}
    for batch in seen:
        for key, image in zip(batch.keys, batch.images, strict=True):
            images.setdefault(key, set()).add(image.numpy().tobytes())
    assert len(seen) == EPOCHS * 3
    assert {len(different) for different in images.values()} == {views}


@pytest.mark.parametrize(
    ("names", "is_loaded"),
    [("modx", False), ("ctp+modx", True), ("modx+ewc", True)],
)
def test_the_teacher_is_loaded_only_where_its_weights_are_needed(
    world: TrainingWorld,
    first: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: str,
    *,
    is_loaded: bool,
) -> None:
    step = second(world, first, names)
    step = replace(step, out=tmp_path / "run", targets=targets_of(step, tmp_path / "targets"))
    made: list[TrainRun] = []
    start = TrainRun.__post_init__
    monkeypatch.setattr(TrainRun, "__post_init__", lambda run: made.append(run) or start(run))
    train_step(step)
    assert (made[0].previous is not None, made[0].first) == (is_loaded, False)


@pytest.mark.parametrize("names", [name for name in TABLE if name != "joint"])
def test_a_method_that_uses_the_previous_weights_says_so(
    world: TrainingWorld, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    used = []
    anchor = MethodRun.anchor.fget
    spied = property(lambda view: used.append(view.method) or anchor(view))
    monkeypatch.setattr(MethodRun, "anchor", spied)
    step = with_settings(second(world, first, names), steps=1)
    train_step(replace(step, out=tmp_path / "run"))
    assert bool(used) == NEEDS[names].previous_weights


@pytest.mark.dist
def test_two_processes_are_taught_as_one_is(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    step = second(world, first, "modx")
    step = replace(step, targets=targets_of(step, tmp_path / "targets"))

    train_together(replace(step, out=tmp_path / "two"))
    one = train_step(replace(step, out=tmp_path / "one"))
    assert column(tmp_path / "two", "loss") == pytest.approx(column(one, "loss"), rel=1e-5)


def test_targets_that_do_not_fit_are_refused(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    step = replace(second(world, first, "modx"), out=tmp_path / "run")
    targets = targets_of(step, tmp_path / "targets")
    step = replace(step, targets=targets)

    def refuses(changed: TrainRequest, said: str, error: type[Exception] = Incompatible) -> None:
        with pytest.raises(error, match=said):
            train_step(changed)
        assert not changed.out.exists()

    refuses(with_settings(step, flip=False), "transform: flip was True and is now False")
    refuses(with_settings(step, jpeg_decode="scaled"), "jpeg_decode was 'exact'")
    refuses(with_settings(step, resize="torch"), "resize was not set")
    other = request(world, "seqf", 0, tmp_path, buffered=False)
    train_step(replace(other, seed=1))
    refuses(replace(step, teacher=tmp_path / "00"), "was made with a different teacher than")
    refuses(replace(step, tasks=(world.tasks[2],)), "does not contain the pairs of")
    refuses(replace(step, buffer=world.buffers["reservoir"][0]), "does not contain the pairs of")
    refuses(replace(step, methods=compose("seqf")), "--targets has no effect with", UsageError)


def test_other_targets_make_another_run(world: TrainingWorld, first: Path, tmp_path: Path) -> None:
    step = replace(second(world, first, "modx"), out=tmp_path / "run")
    train_step(replace(step, targets=targets_of(step, tmp_path / "one", views=1)))
    with pytest.raises(OutputExists, match="targets "):
        train_step(replace(step, targets=targets_of(step, tmp_path / "two", views=2)))
    with pytest.raises(OutputExists, match="targets "):
        train_step(step)


@pytest.mark.slow
def test_killed_and_resumed_with_targets_equals_never_stopped(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    step = second(world, first, "modx")
    targets = targets_of(step, tmp_path / "targets", views=2)
    step = replace(step, targets=targets, save_every="2")
    train_step(replace(step, out=tmp_path / "one" / "01"))
    killed = replace(step, out=tmp_path / "killed" / "01")
    for point in ("step=3", "step=7", "before-rename"):
        assert in_child(killed, kill_at(point)) == -signal.SIGKILL
    assert in_child(killed) == 0
    assert checkpoint_bytes(tmp_path / "killed") == checkpoint_bytes(tmp_path / "one")
