"""Unit-length embeddings of images and texts, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.models.dual_encoder import DualEncoder


@torch.inference_mode()
def embed_images(encoder: DualEncoder, batches: Iterable[Tensor]) -> np.ndarray:
    """(N, D) float32 of batches of (B, H, W, 3) bytes, in eval mode."""
    encoder.module.eval()
    return _joined(encoder, (encoder.features(encoder.pixels(batch), None)[0] for batch in batches))


@torch.inference_mode()
def embed_texts(encoder: DualEncoder, batches: Iterable[list[str]]) -> np.ndarray:
    """(N, D) float32 of batches of texts, in eval mode."""
    encoder.module.eval()
    device = next(encoder.module.parameters()).device
    tokens = (encoder.tokenize(batch).to(device) for batch in batches)
    return _joined(encoder, (encoder.features(None, ids)[1] for ids in tokens))


def _joined(encoder: DualEncoder, parts: Iterable[Tensor | None]) -> np.ndarray:
    arrays = [normalize(part.float(), dim=-1).cpu().numpy() for part in parts if part is not None]
    empty = np.empty((0, int(encoder.config["embed_dim"])), dtype=np.float32)
    return np.concatenate([empty, *arrays])
