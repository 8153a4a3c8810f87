"""Inputs reach the device once per batch, and leave it after the step."""

from __future__ import annotations

import weakref
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from support.battery import TrainingWorld, make_world, request, with_fusion_model
from torch import Tensor

from vlcpctl.core.batch import Batch, PseudoTexts, ReplayedProjections
from vlcpctl.models.base import BaseEncoder
from vlcpctl.training.loop.device_batches import on_device
from vlcpctl.training.train_step import train_step

META = torch.device("meta")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    return make_world(tmp_path_factory.mktemp("world"))


def whole_batch() -> Batch:
    """A batch with every field."""
    ids = torch.ones(2, 3, dtype=torch.int64)
    plain = Batch(
        keys=["a", "b"],
        replayed=torch.tensor([False, True]),
        images=torch.zeros(2, 4, 4, 3, dtype=torch.uint8),
        texts=ids,
        masked=ids,
        labels=ids,
        stored=ReplayedProjections(image=torch.zeros(1, 8), text=torch.zeros(1, 8)),
        targets=(torch.zeros(2, 8), torch.zeros(2, 8)),
        pseudo=PseudoTexts(torch.zeros(2, 3, 8), torch.zeros(2)),
    )
    return replace(plain, buffer_batch=plain)


def tensors_of(value: object, name: str = "") -> dict[str, Tensor]:
    """The tensors in a batch by path; those that it holds in tuples and other batches, too."""
    if isinstance(value, Tensor):
        return {name: value}
    if isinstance(value, tuple):
        parts = {str(number): one for number, one in enumerate(value)}
    elif hasattr(value, "__dataclass_fields__"):
        parts = {one.name: getattr(value, one.name) for one in fields(value)}  # type: ignore[arg-type]
    else:
        return {}
    return {
        path: tensor
        for part, one in parts.items()
        for path, tensor in tensors_of(one, f"{name}.{part}").items()
    }


def test_all_but_what_decides_shapes_goes_to_the_device() -> None:
    (found,) = on_device([whole_batch()], META)
    on_host = {path for path, one in tensors_of(found).items() if one.device.type == "cpu"}
    flags = {".replayed", ".labels"}
    assert on_host == flags | {f".buffer_batch{flag}" for flag in flags}
    assert len(tensors_of(found)) == 2 * 11
    assert found.images.dtype == torch.uint8


def test_on_a_cpu_batches_are_the_same_objects() -> None:
    batch = whole_batch()
    (found,) = on_device([batch], torch.device("cpu"))
    assert found is batch


def test_pinning_pins_what_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)  # type: ignore[func-returns-value]
    assert whole_batch().pin_memory().keys == ["a", "b"]
    assert len(pinned) == 2 * 9


@pytest.mark.parametrize(("fuses", "parts", "expected"), [(False, 4, 1), (True, 4, 1)])
def test_a_step_normalises_a_whole_batch_once(
    world: TrainingWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: int,
    expected: int,
    *,
    fuses: bool,
) -> None:
    """The passes of ctp: the trained model's, the momentum model's and the previous model's."""
    if fuses:
        world = with_fusion_model(world)
    for number in range(2):
        made: list[weakref.ref[Tensor]] = []
        pixels = BaseEncoder.pixels

        def counted(self: BaseEncoder, images: Tensor) -> Tensor:
            made.append(weakref.ref(found := pixels(self, images)))  # noqa: B023
            return found

        monkeypatch.setattr(BaseEncoder, "pixels", counted)
        alive: list[int] = []
        step = request(world, "ctp", number, tmp_path, buffered=False)
        step = replace(step, settings=replace(step.settings, micro_batch=parts))
        train_step(
            step,
            lambda point: (
                alive.append(sum(one() is not None for one in made))  # noqa: B023
                if point.startswith("step=")
                else None
            ),
        )
        monkeypatch.undo()
    assert len(made) == expected * 6
    assert set(alive) == {0}, "pixels outlive their step"
