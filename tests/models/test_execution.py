"""Ways to run a module that change memory or speed, and not what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.processes import exit_code_of, start_child
from torch import Tensor, nn
from torch.nn import functional

from vlcpctl.core.batch import Batch
from vlcpctl.files.tensors import write_tensors
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.models.execution import (
    checkpoint_open_clip,
    pixels_for_gradients,
    use_channels_last,
)
from vlcpctl.training.config.settings import Settings
from vlcpctl.training.loop.train_run import TrainRun

TEXTS = ["a red heart", "grinning cat face", "x", "a dog"]


def encoder_of(name: str) -> Encoder:
    encoder = encoders.build(name, NewModelOptions(seed=1))
    encoder.module.train()
    return encoder


def projections(encoder: Encoder) -> list[Tensor]:
    """Those of images and texts, and of both together from a fusion model."""
    size = encoder.transform.image_size
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (4, size, size, 3), dtype=torch.uint8, generator=draw)
    pixels, ids = encoder.inputs(images, encoder.tokenize(TEXTS))
    torch.manual_seed(5)  # of dropout
    if encoder.family == "fusion":
        out = encoder.outputs(pixels, ids, ids, (torch.tensor([0, 1]), torch.tensor([1, 1])))
        return [out.image, out.text, out.fused, out.logits]
    return list(encoder.features(pixels, ids))


def gradients(encoder: Encoder) -> tuple[Mapping[str, Tensor], int]:
    """The gradients of a sum, and the bytes that the forward pass kept for backward."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        total = torch.stack([one.square().sum() for one in projections(encoder)]).sum()
    encoder.module.zero_grad()
    total.backward()
    found = {n: one.grad for n, one in encoder.weights().items() if one.grad is not None}
    return {name: grad.clone() for name, grad in found.items()}, sum(kept.values())


@pytest.mark.parametrize("name", ["micro", "albef-micro"])
def test_checkpointed_gradients_are_equal_and_keep_fewer_bytes(name: str) -> None:
    encoder = encoder_of(name)
    plain, bytes_kept = gradients(encoder)
    encoder.checkpoint_gradients()
    recomputed, fewer = gradients(encoder)
    assert plain.keys() == recomputed.keys()
    assert all(torch.equal(plain[one], recomputed[one]) for one in plain)
    assert fewer < 0.7 * bytes_kept  # the more layers, the fewer


def test_without_gradients_nothing_is_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of("albef-micro")
    encoder.checkpoint_gradients()
    monkeypatch.setattr("torch.utils.checkpoint.checkpoint", lambda *_, **__: 1 / 0)
    with torch.no_grad():
        _, text = encoder.features(None, encoder.tokenize(TEXTS))
    assert text is not None


def test_batch_norms_are_not_run_twice(capsys: pytest.CaptureFixture[str]) -> None:
    encoder = encoders.build("RN50", NewModelOptions(image_size=32))
    checkpoint_open_clip(encoder.module)
    assert "covers the text encoder only" in capsys.readouterr().err
    assert encoder.module.get_submodule("transformer").grad_checkpointing is True


class Small(nn.Module):
    """Two convolutions and a table of four dimensions that is not a convolution's."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3)
        self.places = nn.Parameter(torch.zeros(1, 4, 6, 6))

    def forward(self, pixels: Tensor) -> Tensor:
        hidden: Tensor = self.two(self.one(pixels) + self.places)
        return hidden


def test_convolutions_become_channels_last_and_are_written_as_before(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, pixels = Small(), torch.rand(2, 3, 8, 8)
    before = module(pixels)
    write_tensors(tmp_path / "before", module.state_dict())
    use_channels_last(module)
    assert module.two.weight.is_contiguous(memory_format=torch.channels_last)
    assert module.places.is_contiguous()
    torch.testing.assert_close(module(pixels), before)
    write_tensors(tmp_path / "after", module.state_dict())
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    assert load_file(tmp_path / "after").keys() == module.state_dict().keys()


@pytest.mark.parametrize("trains", [True, False])
def test_every_attention_of_a_fusion_model_is_fused(
    monkeypatch: pytest.MonkeyPatch, *, trains: bool
) -> None:
    encoder = encoder_of("albef-micro")
    encoder.module.train(trains)
    assert encoder.family == "fusion"
    fused = functional.scaled_dot_product_attention
    seen: list[bool] = []

    def count(*args: Any, **how: Any) -> Tensor:
        seen.append(True)
        return fused(*args, **how)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", count)
    monkeypatch.setattr(functional, "softmax", lambda *_, **__: 1 / 0)
    projections(encoder)
    image, text = encoder.config["image_cfg"], encoder.config["text_cfg"]
    # The layers that fuse attend to the text and to the image.
    assert len(seen) == image["layers"] + text["layers"] + text["fusion_layers"]


def test_the_stem_of_mobileclip_is_trained_on_a_cpu() -> None:
    """From channels-last pixels its weight gradient ends the process."""
    stem = nn.Conv2d(3, 64, 1, stride=2, bias=False)

    def act(_: int) -> None:
        for _step in range(4):
            pixels = torch.rand(4, 256, 256, 3).permute(0, 3, 1, 2)
            stem(pixels_for_gradients(stem, pixels)).sum().backward()

    assert exit_code_of(start_child(act)) == 0


@pytest.mark.parametrize(
    ("part", "keeps"),
    [
        (nn.Conv2d(3, 64, 1, stride=2), False),
        (nn.Conv2d(15, 64, 1, stride=3), False),
        (nn.Conv2d(3, 64, 1), True),
        (nn.Conv2d(3, 64, 3, stride=2), True),
        (nn.Conv2d(3, 64, 16, stride=16), True),
        (nn.Conv2d(16, 64, 1, stride=2), True),
        (nn.Conv2d(8, 8, 1, stride=2, groups=8), True),
    ],
)
def test_other_stems_take_pixels_as_they_are(part: nn.Module, keeps: bool) -> None:
    pixels = torch.rand(2, 4, 4, 3).permute(0, 3, 1, 2)
    assert (pixels_for_gradients(nn.Sequential(part), pixels) is pixels) == keeps


def test_training_encodes_such_pixels() -> None:
    encoder = encoder_of("micro")
    encoder.module.stem = nn.Conv2d(3, 64, 1, stride=2)
    settings = Settings(batch_size=2)
    device = torch.device("cpu")
    run = TrainRun(encoder=encoder, methods=(), settings=settings, seed=0, device=device)
    images = torch.zeros(2, 16, 16, 3, dtype=torch.uint8)
    texts = encoder.tokenize(["a", "b"])
    batch = Batch(keys=["a", "b"], images=images, texts=texts, replayed=torch.zeros(2))
    assert run._inputs(batch, slice(0, 2)).pixels.is_contiguous()
