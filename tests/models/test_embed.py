"""Embeddings come in unit length, in order, whatever the batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vlcpctl.models import dual_encoder
from vlcpctl.models.dual_encoder import DualEncoder
from vlcpctl.models.embed import embed_images, embed_texts

TEXTS = ["red", "green", "a blue thing", "red"]


@pytest.fixture
def encoder() -> DualEncoder:
    return dual_encoder.build("micro")


def test_embeddings_have_unit_length_and_keep_their_order(encoder: DualEncoder) -> None:
    texts = embed_texts(encoder, iter([TEXTS[:3], TEXTS[3:]]))
    assert texts.shape == (4, 8)
    assert texts.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(texts[0], texts[3], rtol=1e-5)
    np.testing.assert_allclose(texts, embed_texts(encoder, [TEXTS]), rtol=1e-4, atol=1e-6)


def test_images_are_embedded_as_open_clip_does(encoder: DualEncoder) -> None:
    images = torch.randint(256, (3, 16, 16, 3), dtype=torch.uint8)
    with torch.no_grad():
        theirs = encoder.module.encode_image(encoder.pixels(images), normalize=True)
    np.testing.assert_allclose(
        embed_images(encoder, [images]), theirs.numpy(), rtol=1e-5, atol=1e-7
    )
