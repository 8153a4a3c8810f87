"""Inputs reach the device once per batch, and leave it after the step."""

from __future__ import annotations

import weakref
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from support.training import with_settings
from torch import Tensor

from vlcpctl.core.batch import Batch, PseudoTexts, ReplayedProjections
from vlcpctl.core.devices import copied_ahead
from vlcpctl.models.base import BaseEncoder
from vlcpctl.testing.battery import TrainingWorld, request, with_fusion_model
from vlcpctl.training.train_step import train_step

META = torch.device("meta")


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
    elif isinstance(value, Batch | PseudoTexts | ReplayedProjections):
        parts = {one.name: getattr(value, one.name) for one in fields(value)}
    else:
        return {}
    return {
        path: tensor
        for part, one in parts.items()
        for path, tensor in tensors_of(one, f"{name}.{part}").items()
    }


def test_all_but_what_decides_shapes_goes_to_the_device() -> None:
    (found,) = copied_ahead([whole_batch()], META, Batch.moved)
    on_host = {path for path, one in tensors_of(found).items() if one.device.type == "cpu"}
    flags = {".replayed", ".labels"}
    assert on_host == flags | {f".buffer_batch{flag}" for flag in flags}
    assert len(tensors_of(found)) == 2 * 11
    assert found.images.dtype == torch.uint8


class Seen:
    """The pixels that an encoder made; a weak reference to each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[weakref.ref[Tensor]] = []
        self.alive: list[int] = []
        pixels = BaseEncoder.pixels

        def counted(encoder: BaseEncoder, images: Tensor) -> Tensor:
            found = pixels(encoder, images)
            self.made.append(weakref.ref(found))
            return found

        monkeypatch.setattr(BaseEncoder, "pixels", counted)

    def after(self, point: str) -> None:
        """Count the pixels that are still in memory after a step."""
        if point.startswith("step="):
            self.alive.append(sum(one() is not None for one in self.made))


@pytest.mark.parametrize(("parts", "times"), [(None, 1), (2, 8)])
@pytest.mark.parametrize("fuses", [False, True])
def test_a_step_normalises_a_whole_batch_once(
    world: TrainingWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: int | None,
    times: int,
    *,
    fuses: bool,
) -> None:
    """The passes of ctp: the trained model's, the momentum model's and the previous model's.

    In micro-batches the trained model encodes each part twice, and none is kept.
    """
    if fuses:
        world = with_fusion_model(world)
    train_step(request(world, "ctp", 0, tmp_path, buffered=False))
    seen = Seen(monkeypatch)
    step = request(world, "ctp", 1, tmp_path, buffered=False)
    train_step(with_settings(step, micro_batch=parts), seen.after)
    assert len(seen.made) >= times * len(seen.alive)
    if parts is None:
        assert len(seen.made) == times * len(seen.alive)
    assert set(seen.alive) == {0}, "pixels outlive their step"
