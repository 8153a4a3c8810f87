"""One feature for each image-text pair, as herding and k-means compare pairs by."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.console import progress
from vlcpctl.data.task import Split
from vlcpctl.data.views import decode_image, eval_view
from vlcpctl.models.encoders import Encoder

BATCH = 256


@torch.inference_mode()
def pair_features(
    encoder: Encoder, split: Split, rows: np.ndarray, device: torch.device
) -> np.ndarray:
    """(N, D) float32 of unit length: the mean of the image's embedding and its captions'.

    Both embeddings are of unit length before they are averaged; of several captions, the mean of
    their embeddings stands for the text.
    """
    encoder.module.to(device).eval()
    parts = []
    with progress("features", len(rows), "pairs") as bar:
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH].tolist()
            parts.append(_features(encoder, split, batch).float().cpu().numpy())
            bar.advance(len(batch))
    return np.concatenate(parts)


def _features(encoder: Encoder, split: Split, rows: list[int]) -> Tensor:
    captions = [split.captions(row) for row in rows]
    texts = encoder.tokenize([caption for some in captions for caption in some])
    pixels = torch.from_numpy(np.stack([_view(encoder, split, row) for row in rows]))
    image, text = encoder.features(*encoder.inputs(pixels, texts))
    assert image is not None
    assert text is not None
    owner = torch.repeat_interleave(torch.tensor([len(some) for some in captions]))
    sums = torch.zeros_like(image).index_add_(0, owner.to(image.device), normalize(text, dim=-1))
    return normalize(normalize(image, dim=-1) + normalize(sums, dim=-1), dim=-1)


def _view(encoder: Encoder, split: Split, row: int) -> np.ndarray:
    what = f"{split.path}: the image of key {split.keys[row]}"
    return eval_view(decode_image(split.image(row), what), encoder.view)
