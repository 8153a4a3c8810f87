"""Features of image-text pairs: one each, for herding and k-means, or both sides, to be stored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.console import progress
from vlcpctl.data.stored_features import Projections
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
    parts = [_of_pairs(*found) for found in _batches(encoder, split, rows, device)]
    return np.concatenate([part.float().cpu().numpy() for part in parts])


@torch.inference_mode()
def raw_projections(
    encoder: Encoder, split: Split, rows: np.ndarray, device: torch.device, maker: str
) -> Projections:
    """Raw projections of images and of all captions, at half precision, by the model `maker`."""
    images, texts = [np.empty((0, encoder.width))], [np.empty((0, encoder.width))]
    counts = split.caption_counts()[rows]
    for image, text, _ in _batches(encoder, split, rows, device):
        images.append(image.float().cpu().numpy())
        texts.append(text.float().cpu().numpy())
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, which the caller refuses
        sides = [np.concatenate(side).astype(np.float16) for side in (images, texts)]
    return Projections(sides[0], sides[1], counts, [maker] * len(rows))


def _batches(
    encoder: Encoder, split: Split, rows: np.ndarray, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Raw projections of images and captions, and which image each caption is of."""
    encoder.module.to(device).eval()
    with progress("features", len(rows), "pairs") as bar:
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH].tolist()
            captions = [split.captions(row) for row in batch]
            texts = encoder.tokenize([caption for some in captions for caption in some])
            pixels = torch.from_numpy(np.stack([_view(encoder, split, row) for row in batch]))
            image, text = encoder.features(*encoder.inputs(pixels, texts))
            owner = torch.repeat_interleave(torch.tensor([len(some) for some in captions]))
            yield image, text, owner
            bar.advance(len(batch))


def _of_pairs(image: Tensor, text: Tensor, owner: Tensor) -> Tensor:
    sums = torch.zeros_like(image).index_add_(0, owner.to(image.device), normalize(text, dim=-1))
    return normalize(normalize(image, dim=-1) + normalize(sums, dim=-1), dim=-1)


def _view(encoder: Encoder, split: Split, row: int) -> np.ndarray:
    what = f"{split.path}: the image of key {split.keys[row]}"
    return eval_view(decode_image(split.image(row), what), encoder.view)
