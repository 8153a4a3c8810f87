"""Features of image-text pairs: one per pair for herding and k-means, or both sides to store.

The encoder is in eval mode and on its device; see `encoders.load_for_inference`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.console import progress
from vlcpctl.core.device_copies import to_device, to_host
from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.precomputed.stored_features import StoredProjections
from vlcpctl.data.tasks.task import Split
from vlcpctl.models.encoders import Encoder

BATCH = 256


@dataclass(frozen=True)
class PairChunk:
    """A batch of N pairs with T captions; `owner` (T,) is the index of each caption's image."""

    images: Tensor
    texts: Tensor
    owner: Tensor


@torch.inference_mode()
def pair_features(encoder: Encoder, split: Split, rows: np.ndarray) -> np.ndarray:
    """(N, D) float32 of unit length: the mean of each image's embedding and its captions'.

    Image and text embeddings have unit length before they are averaged; several captions are
    averaged first. From a fusion model it is the [CLS] state of image and caption together, (N, C),
    averaged over captions.
    """
    of_pairs = _fused if encoder.family == "fusion" else _of_both_sides
    parts = (of_pairs(encoder, chunk) for chunk in _chunks(encoder, split, rows))
    return np.concatenate(list(to_host(part.float() for part in parts)))


@torch.inference_mode()
def raw_projections(
    encoder: Encoder, split: Split, rows: np.ndarray, model_id: str
) -> StoredProjections:
    """Raw float16 projections of N images (N, D) and of all their captions (T, D).

    `model_id` is the content id of the model. Values that overflow float16 become infinite.
    """
    images, texts = [np.empty((0, encoder.width))], [np.empty((0, encoder.width))]
    counts = split.caption_counts()[rows]
    for chunk in _chunks(encoder, split, rows):
        image, text = encoder.features(chunk.images, chunk.texts)
        images.append(image.float().cpu().numpy())
        texts.append(text.float().cpu().numpy())
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, which the caller refuses
        sides = [np.concatenate(side).astype(np.float16) for side in (images, texts)]
    return StoredProjections(sides[0], sides[1], counts, [model_id] * len(rows))


def _chunks(encoder: Encoder, split: Split, rows: np.ndarray) -> Iterator[PairChunk]:
    with progress("features", len(rows), "pairs") as bar:
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH].tolist()
            captions = [split.captions(row) for row in batch]
            texts = encoder.tokenize([caption for some in captions for caption in some])
            pixels = torch.from_numpy(np.stack([_view(encoder, split, row) for row in batch]))
            owner = torch.repeat_interleave(torch.tensor([len(some) for some in captions]))
            images, texts = encoder.inputs(pixels, texts)
            yield PairChunk(images, texts, to_device(owner, images.device))
            bar.advance(len(batch))


def _of_both_sides(encoder: Encoder, chunk: PairChunk) -> Tensor:
    image, text = encoder.features(chunk.images, chunk.texts)
    return normalize(normalize(image, dim=-1) + _mean_direction(text, chunk), dim=-1)


def _fused(encoder: Encoder, chunk: PairChunk) -> Tensor:
    assert encoder.family == "fusion"
    return _mean_direction(encoder.fused(chunk.images[chunk.owner], chunk.texts), chunk)


def _mean_direction(of_captions: Tensor, chunk: PairChunk) -> Tensor:
    """(N, D): the mean direction of each image's captions, unit length, from (T, D)."""
    sums = of_captions.new_zeros(len(chunk.images), of_captions.shape[1])
    sums.index_add_(0, chunk.owner, normalize(of_captions, dim=-1))
    return normalize(sums, dim=-1)


def _view(encoder: Encoder, split: Split, row: int) -> np.ndarray:
    what = f"{split.path}: the image of key {split.keys[row]}"
    return eval_view(decode_image(split.image(row), what), encoder.transform)
