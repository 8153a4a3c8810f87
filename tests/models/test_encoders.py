"""Encoders of both families: what is saved and drawn, and what other weights leave alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from vlcpctl.core.errors import UsageError
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder, NewModelOptions

TEXTS = ["a red heart", "grinning cat face with smiling eyes, animal", "x", ""]
families = pytest.mark.parametrize("name", ["micro", "albef-micro"])


def built(name: str | Path, **how: Any) -> Encoder:
    return encoders.build(name, NewModelOptions(**how))


def results(encoder: Encoder, weights: Mapping[str, Tensor] | None = None) -> list[Tensor]:
    """All that an encoder computes of four pairs."""
    size = encoder.transform.image_size
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (4, size, size, 3), dtype=torch.uint8, generator=draw)
    pixels, ids = encoder.inputs(images, encoder.tokenize(TEXTS))
    if encoder.family == "fusion":
        masked = ids.clone()
        masked[:, 1] = encoder.special.mask
        out = encoder.outputs(pixels, ids, masked, masked != ids, weights)
        return [out.image, out.text, out.fused, out.logits]
    return list(encoder.features(pixels, ids, weights))


def same(one: Encoder, other: Encoder) -> bool:
    return all(map(torch.equal, results(one), results(other)))


DRAWS = {torch.Tensor.normal_, torch.Tensor.uniform_, torch.randn, init.normal_, init.uniform_}


class Drawn(TorchFunctionMode):
    """Counts what draws random numbers."""

    count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += func in DRAWS
        return func(*args, **(kwargs or {}))


@families
def test_a_loaded_checkpoint_is_what_was_saved_and_nothing_is_drawn_for_it(
    name: str, tmp_path: Path
) -> None:
    options = {"temperature": "learn:0.05", "text_length": 9, "image_size": 24}
    with Drawn() as drawn:
        encoder = built(name, seed=1, **options)
        assert drawn.count > 10
        encoders.save(encoder, tmp_path)
        drawn.count = 0
        loaded = encoders.load(tmp_path)
    assert drawn.count == 0
    assert (loaded.transform, loaded.width) == (encoder.transform, 8)
    assert loaded.tokenize(["a"]).shape == (1, 9)
    assert loaded.weights()["logit_scale"].requires_grad
    assert same(encoder, loaded)


@families
def test_saved_bytes_depend_on_the_weights_alone(name: str, tmp_path: Path) -> None:
    first, second, third = (tmp_path / place for place in "abc")
    for place in (first, second, third):
        place.mkdir()
    encoders.save(built(name, seed=1), first)
    encoders.save(built(name, seed=1), second)
    encoders.save(encoders.load(first), third)
    files = sorted(path.name for path in first.iterdir())
    assert {"tokenizer.json"} < set(files)
    for file in files:
        data = (first / file).read_bytes()
        assert data == (second / file).read_bytes() == (third / file).read_bytes()


@families
def test_the_seed_decides_the_weights_and_nothing_else_is_drawn(name: str) -> None:
    before = torch.random.get_rng_state()
    first, again, other = built(name, seed=1), built(name, seed=1), built(name, seed=2)
    assert torch.equal(before, torch.random.get_rng_state())
    assert same(first, again)
    assert not same(first, other)


@families
@pytest.mark.parametrize(("text", "trains"), [("fixed:0.07", False), ("learn:0.2", True)])
def test_temperature_sets_the_scale_and_whether_it_trains(
    name: str, tmp_path: Path, text: str, *, trains: bool
) -> None:
    encoder = built(name, temperature=text)
    encoders.save(encoder, tmp_path)
    for one in (encoder, encoders.load(tmp_path)):
        scale = one.weights()["logit_scale"]
        assert scale.requires_grad is trains
        assert scale.exp().item() == pytest.approx(1 / float(text.split(":")[1]))


@families
def test_a_checkpoint_can_be_started_from(name: str, tmp_path: Path) -> None:
    encoder = built(name, seed=5)
    encoders.save(encoder, tmp_path)
    started = built(tmp_path, temperature="learn:0.1")
    assert same(started, encoder)
    assert started.weights()["logit_scale"].exp().item() == pytest.approx(10)
    with pytest.raises(UsageError, match="has its own weights"):
        built(tmp_path, pretrained="none")


@families
def test_gradients_reach_every_trained_weight(name: str) -> None:
    encoder = built(name, temperature="learn:0.07")
    total = torch.stack([one.square().sum() for one in results(encoder)]).sum()
    (total + encoder.weights()["logit_scale"]).backward()
    assert all(weight.grad is not None for weight in encoder.weights().values())


@families
def test_double_precision_works_throughout(name: str) -> None:
    encoder = built(name)
    encoder.module.double()
    assert {one.dtype for one in results(encoder, dict(encoder.weights()))} == {torch.float64}


@families
def test_other_weights_leave_the_model_as_it_was(name: str) -> None:
    encoder = built(name)
    encoder.module.train()
    before = results(encoder)
    others = {key: torch.zeros_like(weight) for key, weight in encoder.weights().items()}
    assert not any(one.any() for one in results(encoder, others))
    assert all(part.training for part in encoder.module.modules())
    assert all(map(torch.equal, before, results(encoder)))
