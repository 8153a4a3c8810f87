"""Unit-length embeddings of images and texts, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.models.encoders import Encoder
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder


@torch.inference_mode()
def embed_images(encoder: Encoder, batches: Iterable[Tensor]) -> np.ndarray:
    """(N, D) float32 embeddings of batches of images (B, H, W, 3) bytes; sets eval mode."""
    encoder.module.eval()
    return _joined(encoder, (encoder.features(encoder.pixels(batch), None)[0] for batch in batches))


@torch.inference_mode()
def embed_texts(encoder: Encoder, batches: Iterable[list[str]]) -> np.ndarray:
    """(N, D) float32 embeddings of batches of texts; sets eval mode."""
    encoder.module.eval()
    device = next(encoder.module.parameters()).device
    tokens = (encoder.tokenize(batch).to(device) for batch in batches)
    return _joined(encoder, (encoder.features(None, ids)[1] for ids in tokens))


@torch.inference_mode()
def embed_pairs(encoder: FusionEncoder, batches: Iterable[tuple[Tensor, list[str]]]) -> np.ndarray:
    """(N, C) float32 embeddings of batches of images and texts, each image fused with its text.

    They are the fusion model's [CLS] states at unit length; sets eval mode.
    """
    encoder.module.eval()
    inputs = (encoder.inputs(images, encoder.tokenize(texts)) for images, texts in batches)
    parts = (normalize(encoder.fused(*pair).float(), dim=-1) for pair in inputs)
    return np.concatenate([part.cpu().numpy() for part in parts])


def _joined(encoder: Encoder, parts: Iterable[Tensor | None]) -> np.ndarray:
    arrays = [normalize(part.float(), dim=-1).cpu().numpy() for part in parts if part is not None]
    empty = np.empty((0, encoder.width), dtype=np.float32)
    return np.concatenate([empty, *arrays])
