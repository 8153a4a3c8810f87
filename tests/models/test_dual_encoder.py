"""Dual encoders: equal to open_clip's own, refused when unfit, undisturbed by other weights."""

from __future__ import annotations

import errno
import json
import mmap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from vlcpctl.core.errors import Incompatible
from vlcpctl.models import dual_encoder
from vlcpctl.models.dual_encoder import DualEncoder
from vlcpctl.models.imports import open_clip

TEXTS = ["grinning face", "Tom &amp; Jerry,  a cat", "", "a very long text " * 20, "naïve 中文"]

RESNET = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 4, "head_width": 8},
    "text_cfg": {"context_length": 8, "width": 8, "heads": 2, "layers": 1},
}


def encoder_of(name: str = "micro", **how: object) -> DualEncoder:
    return dual_encoder.build(name, **how)  # type: ignore[arg-type]


def inputs(encoder: DualEncoder, count: int = 5) -> tuple[Tensor, Tensor]:
    size = encoder.transform.image_size
    images = torch.randint(
        256, (count, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return encoder.inputs(images, encoder.tokenize(TEXTS[:count]))


@pytest.fixture
def resnet(tmp_path: Path) -> DualEncoder:
    path = tmp_path / "resnet.json"
    path.write_text(json.dumps(RESNET))
    return dual_encoder.build(path)


# Reading and writing


@pytest.mark.parametrize("name", ["micro", "tiny"])
def test_bare_open_clip_gives_the_same_embeddings_and_tokens(name: str, tmp_path: Path) -> None:
    encoder = encoder_of(name, seed=3)
    dual_encoder.save(encoder, tmp_path)
    bare, _, preprocess = open_clip().create_model_and_transforms(f"local-dir:{tmp_path}")
    tokens = open_clip().get_tokenizer(f"local-dir:{tmp_path}")(TEXTS)
    assert torch.equal(tokens, encoder.tokenize(TEXTS))
    images, texts = inputs(encoder)
    ours = encoder.features(images, texts)
    assert torch.equal(bare.encode_image(images), ours[0])
    assert torch.equal(bare.encode_text(tokens), ours[1])
    assert preprocess.transforms[0].size == encoder.transform.image_size


def test_pixels_are_normalised_as_open_clip_does_it() -> None:
    from PIL import Image

    encoder = encoder_of("tiny")
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    transform = open_clip().image_transform(32, is_train=False)
    theirs = transform(Image.fromarray(image))
    assert torch.equal(encoder.pixels(torch.from_numpy(image[None]))[0], theirs)


@pytest.mark.parametrize("huge_pages", [True, False])
def test_pixels_of_a_large_batch_are_those_of_its_images(
    huge_pages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoBlocks(mmap.mmap):
        def __new__(cls, *_: object, **__: object) -> NoBlocks:
            raise OSError(errno.ENOMEM, "no memory")

    if not huge_pages:
        monkeypatch.setattr(mmap, "mmap", NoBlocks)
    encoder = encoder_of(image_size=224)
    images = torch.randint(256, (64, 224, 224, 3), dtype=torch.uint8)
    pixels = encoder.pixels(images)
    assert pixels.nbytes > 32 << 20
    for one, alone in zip(pixels, images, strict=True):
        assert torch.equal(one, encoder.pixels(alone[None])[0])


def test_other_weights_are_refused_with_the_tensor_named(tmp_path: Path) -> None:
    dual_encoder.save(encoder_of("micro"), tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    dual_encoder.save(encoder_of("micro", text_length=9), other)
    (other / "open_clip_model.safetensors").replace(tmp_path / "open_clip_model.safetensors")
    with pytest.raises(Incompatible, match="'positional_embedding' has shape"):
        dual_encoder.load(tmp_path)


# Building


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    text = {"context_length": 8, "width": 8, "heads": 2, "layers": 1, "vocab_size": 100}
    path.write_text(json.dumps({**RESNET, "text_cfg": text}))
    with pytest.raises(Incompatible, match="49408 tokens, but the model's vocabulary only 100"):
        dual_encoder.build(path)


# Running


def test_other_weights_leave_the_model_as_it_was(resnet: DualEncoder) -> None:
    images, texts = inputs(resnet)
    resnet.module.train()
    others = {name: torch.zeros_like(weight) for name, weight in resnet.weights().items()}
    before = {name: tensor.clone() for name, tensor in resnet.buffers().items()}
    image, text = resnet.features(images, texts, others)
    assert image.abs().sum() == 0
    assert text.abs().sum() == 0
    assert all(torch.equal(before[name], buffer) for name, buffer in resnet.buffers().items())
    assert all(part.training for part in resnet.module.modules())


def test_other_weights_run_in_eval_mode(resnet: DualEncoder) -> None:
    images, texts = inputs(resnet)
    with torch.no_grad():
        for name, buffer in resnet.buffers().items():
            if name.endswith("running_var"):
                buffer.fill_(2.0)
    resnet.module.train()
    same = dict(resnet.weights())
    frozen = resnet.features(images, texts, same)[0]
    resnet.module.eval()
    assert torch.equal(frozen, resnet.features(images, texts)[0])


def test_given_buffers_take_the_place_of_the_models_own(resnet: DualEncoder) -> None:
    images, texts = inputs(resnet)
    everything = {**resnet.weights(), **resnet.buffers()}
    changed = {
        name: torch.full_like(tensor, 2.0) if name.endswith("running_var") else tensor
        for name, tensor in everything.items()
    }
    one = resnet.features(images, texts, everything)[0]
    assert not torch.equal(one, resnet.features(images, texts, changed)[0])
