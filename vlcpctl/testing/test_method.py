"""The tests of one method: `python -m vlcpctl.testing --method NAME` runs them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method
from vlcpctl.testing.battery import (
    TrainingWorld,
    chain,
    in_one_interpreter,
    make_world,
    require_exact_resume,
    with_fusion_model,
)
from vlcpctl.testing.finite import GradientWatch
from vlcpctl.testing.laws import broken_laws
from vlcpctl.testing.off import TurnedOff
from vlcpctl.training.plan import make_plan

if TYPE_CHECKING:
    from vlcpctl.testing.plugin import Case


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    """A stream of three tasks of twelve pairs, and buffers."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return make_world(tmp_path_factory.mktemp("world"))


def _method(case: Case) -> Method:
    name, registry = case
    return registry.find(name)()


def _in_family(case: Case, world: TrainingWorld, family: str) -> TrainingWorld:
    """The data for a dual encoder or a fusion model; skips what the method cannot train."""
    if family == "fusion":
        return with_fusion_model(world)
    if _method(case).needs(first=False).fusion:
        pytest.skip("the method needs a fusion model")
    return world


def test_it_declares_what_every_method_declares(case: Case) -> None:
    """Title, preset, papers, hyper-parameters with description and origin, slots, phases."""
    name, registry = case
    assert broken_laws(registry.find(name), registry) == []


@pytest.mark.parametrize("family", ["dual", "dual with a buffer", "fusion"])
def test_killed_and_resumed_equals_never_stopped(
    case: Case, world: TrainingWorld, tmp_path: Path, family: str
) -> None:
    """A stream in one interpreter, in a process per task and in killed ones: the same bytes."""
    name, registry = case
    kind, _, buffer = family.partition(" ")
    data = _in_family(case, world, kind)
    if buffer and _method(case).needs(first=False).buffer:
        pytest.skip("the method always has a buffer")
    require_exact_resume(
        lambda root: chain(data, name, root, buffered=bool(buffer), registry=registry), tmp_path
    )


@pytest.mark.parametrize("family", ["dual", "fusion"])
def test_losses_gradients_and_weights_are_finite(
    case: Case, world: TrainingWorld, tmp_path: Path, family: str
) -> None:
    """In every step of three tasks."""
    name, registry = case
    data = _in_family(case, world, family)
    GradientWatch.steps.clear()
    GradientWatch.broken.clear()
    steps = chain(data, name, tmp_path, registry=registry)
    in_one_interpreter([replace(step, methods=(*step.methods, GradientWatch())) for step in steps])
    assert not GradientWatch.broken, "these weights got a gradient that is not finite"
    assert GradientWatch.steps
    for step in steps:
        for line in (step.out / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            for term, value in json.loads(line).items():
                assert not isinstance(value, float) or math.isfinite(value), term


def test_two_processes_train_what_one_trains(
    case: Case, world: TrainingWorld, tmp_path: Path
) -> None:
    """The second task: losses and weights are equal, but for rounding."""
    from safetensors.torch import load_file
    from torch.testing import assert_close

    from vlcpctl.training.launch import train

    name, registry = case
    data = _in_family(case, world, "fusion" if _method(case).needs(first=False).fusion else "dual")
    first, second, *_ = chain(data, name, tmp_path, registry=registry)
    # Adam divides by the size of a gradient, and so turns rounding into whole steps.
    settings = replace(second.settings, optimizer="sgd", lr=0.02, steps=3)
    in_one_interpreter([first, replace(second, settings=settings)])
    train(replace(second, settings=settings, out=tmp_path / "two", nproc=2), quiet=True)
    for file in second.out.glob("*.safetensors"):
        one, two = load_file(file), load_file(tmp_path / "two" / file.name)
        assert one.keys() == two.keys()
        for weight, tensor in one.items():
            assert_close(two[weight], tensor, rtol=1e-4, atol=1e-5, msg=f"{weight} differs")


def test_inputs_that_it_needs_are_required(
    case: Case, world: TrainingWorld, tmp_path: Path
) -> None:
    """Without its buffer, the second task is refused before training."""
    name, registry = case
    if not _method(case).needs(first=False).buffer:
        pytest.skip("the method needs no buffer")
    first, second, *_ = chain(world, name, tmp_path, registry=registry)
    in_one_interpreter([first])
    with pytest.raises(UsageError, match="needs --buffer"):
        make_plan(replace(second, buffer=None))


@pytest.mark.parametrize("family", ["dual", "fusion"])
def test_turned_off_it_is_plain_fine_tuning_or_replay(
    case: Case, world: TrainingWorld, tmp_path: Path, family: str
) -> None:
    """With the assignments in `Method.off`: the bytes of seqf, or of er with a buffer."""
    _, registry = case
    if not _method(case).off:
        pytest.skip("the method declares no settings that turn it off (Method.off)")
    off = TurnedOff(_method(case), _in_family(case, world, family), registry)
    assert off.trained(tmp_path / "off") == off.trained_plain(tmp_path / "plain")
