"""Features of pairs: both modalities count the same, whatever the captions and the batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.models import encoders
from vlcpctl.precompute import pair_features as module
from vlcpctl.precompute.pair_features import pair_features
from vlcpctl.testing.tiny_stream import make_pair, make_task


@dataclass
class Stub:
    """Embeds an image by its mean colour, a text by its two tokens, at very different lengths."""

    family: str = "dual"
    transform: ImageTransform = ImageTransform(image_size=8, mean=(0, 0, 0), std=(1, 1, 1))  # noqa: RUF009 - frozen

    def tokenize(self, texts: list[str]) -> Tensor:
        return torch.tensor([[len(text) % 7 + 1, len(text) % 5 + 1] for text in texts])

    def inputs(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return images.float(), texts

    def features(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(len(texts), 1)
        return images.mean(dim=(1, 2)) * 1000, torch.cat([texts.float(), zeros], dim=1)


def open_split(directory: Path, captions: int) -> Split:
    pair = partial(make_pair, captions=captions)
    return open_task(make_task(directory, 6, pair=pair)).split("train")


def embed(split: Split, rows: list[int]) -> np.ndarray:
    return pair_features(Stub(), split, np.array(rows))


def test_feature_is_as_near_to_the_image_as_to_the_text(tmp_path: Path) -> None:
    split = open_split(tmp_path / "task", captions=1)
    feature = embed(split, [2])[0]
    image = np.asarray(Stub().features(*_inputs(split, 2))[0][0])
    text = np.asarray(Stub().features(*_inputs(split, 2))[1][0])
    assert np.linalg.norm(feature) == pytest.approx(1, abs=1e-6)
    to_image = feature @ image / np.linalg.norm(image)
    to_text = feature @ text / np.linalg.norm(text)
    assert to_image == pytest.approx(to_text, abs=1e-6)


def test_more_captions_do_not_weigh_more_than_the_image(tmp_path: Path) -> None:
    split = open_split(tmp_path / "task", captions=3)
    images, texts = _inputs(split, 1)
    image, text = (np.asarray(one, dtype=np.float64) for one in Stub().features(images, texts))
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    mean = text.sum(axis=0) / np.linalg.norm(text.sum(axis=0))
    expected = image[0] / np.linalg.norm(image[0]) + mean
    np.testing.assert_allclose(embed(split, [1])[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_batches_change_nothing_and_rows_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = open_split(tmp_path / "task", captions=2)
    whole = embed(split, [5, 0, 3])
    monkeypatch.setattr(module, "BATCH", 2)
    np.testing.assert_allclose(embed(split, [5, 0, 3]), whole, atol=1e-6)
    np.testing.assert_allclose(embed(split, [3])[0], whole[2], atol=1e-6)


def _inputs(split: Split, row: int) -> tuple[Tensor, Tensor]:
    image = eval_view(decode_image(split.image(row)), Stub().transform)
    texts = Stub().tokenize(split.captions(row))
    return Stub().inputs(torch.from_numpy(image.copy())[None], texts)


def test_a_fusion_models_feature_is_its_fused_state_averaged_over_captions(tmp_path: Path) -> None:
    encoder = encoders.build("albef-micro")
    encoder.module.eval()
    assert encoder.family == "fusion"
    split = open_split(tmp_path / "task", captions=3)
    found = pair_features(encoder, split, np.arange(6))
    for row in range(6):
        pixels = eval_view(decode_image(split.image(row)), encoder.transform)
        image = torch.tensor(pixels)[None]
        fused = [
            encoder.fused(*encoder.inputs(image, encoder.tokenize([caption])))[0].detach().numpy()
            for caption in split.captions(row)
        ]
        mean = sum(each / np.linalg.norm(each) for each in fused)
        np.testing.assert_allclose(found[row], mean / np.linalg.norm(mean), atol=1e-5)
