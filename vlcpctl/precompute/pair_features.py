"""Features of image-text pairs: one per pair for herding and k-means, or both sides to store.

The encoder is in eval mode and on its device; see `encoders.load_for_inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.console import progress
from vlcpctl.core.devices import to_device
from vlcpctl.data.loading.eval_batches import EvalImages
from vlcpctl.data.precomputed.features import StoredProjections
from vlcpctl.data.tasks.task import Split
from vlcpctl.models.encoders import Encoder

BATCH = 256
_NOTHING = np.empty(0, dtype=np.float32)


Results = Callable[["PairWork", Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class PairWork:
    """Computes batches of pairs: their features, or with `is_raw` raw image and text projections.

    Without `is_raw`, the second array of a result is empty.
    """

    split: Split
    rows: np.ndarray
    is_raw: bool

    def __call__(
        self, encoder: Encoder, numbers: Sequence[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Raises BadInput if an image cannot be read or decoded."""
        images = EvalImages(self.split, self.rows, encoder.transform, BATCH)
        for number in numbers:
            rows = self.rows[number * BATCH :][:BATCH].tolist()
            yield self._result(encoder, images[number], [self.split.captions(row) for row in rows])

    @torch.inference_mode()
    def _result(
        self, encoder: Encoder, pixels: Tensor, captions: Sequence[list[str]]
    ) -> tuple[np.ndarray, np.ndarray]:
        texts = encoder.tokenize([caption for some in captions for caption in some])
        images, texts = encoder.inputs(pixels, texts)
        owner = torch.repeat_interleave(torch.tensor([len(some) for some in captions]))
        owner_T = to_device(owner, images.device)  # the index of each caption's image
        if encoder.family == "fusion" and not self.is_raw:
            fused = encoder.fused(images[owner_T], texts)
            return _array(_mean_direction(fused, owner_T, len(captions))), _NOTHING
        image, text = encoder.features(images, texts)
        if self.is_raw:
            return _array(image), _array(text)
        mean = normalize(image, dim=-1) + _mean_direction(text, owner_T, len(captions))
        return _array(normalize(mean, dim=-1)), _NOTHING


def pair_features(
    encoder: Encoder, split: Split, rows: np.ndarray, results: Results | None = None
) -> np.ndarray:
    """(N, D) float32 of unit length: the mean of each image's embedding and its captions'.

    Image and text embeddings have unit length before they are averaged; several captions are
    averaged first. From a fusion model it is the [CLS] state of image and caption together, (N, C),
    averaged over captions. `results` computes the batches in several processes.
    """
    found = _computed(PairWork(split, rows, is_raw=False), encoder, results)
    return np.concatenate([features for features, _ in found])


def raw_projections(
    encoder: Encoder, split: Split, rows: np.ndarray, model_id: str, results: Results | None = None
) -> StoredProjections:
    """Raw float16 projections of N images (N, D) and of all their captions (T, D).

    `model_id` is the content id of the model. Values that overflow float16 become infinite.
    `results` computes the batches in several processes.
    """
    images, texts = [np.empty((0, encoder.width))], [np.empty((0, encoder.width))]
    counts = split.caption_counts()[rows]
    for image, text in _computed(PairWork(split, rows, is_raw=True), encoder, results):
        images.append(image)
        texts.append(text)
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, which the caller refuses
        sides = [np.concatenate(side).astype(np.float16) for side in (images, texts)]
    return StoredProjections(sides[0], sides[1], counts, [model_id] * len(rows))


def _computed(
    work: PairWork, encoder: Encoder, results: Results | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    numbers = range(-(-len(work.rows) // BATCH))
    found = results(work, numbers) if results else work(encoder, numbers)
    with progress("features", len(work.rows), "pairs") as bar:
        for number, one in zip(numbers, found, strict=True):
            yield one
            bar.advance(len(work.rows[number * BATCH :][:BATCH]))


def _mean_direction(captions_TD: Tensor, owner_T: Tensor, images: int) -> Tensor:
    """(N, D): the mean direction of each image's captions, unit length."""
    sums = captions_TD.new_zeros(images, captions_TD.shape[1])
    sums.index_add_(0, owner_T, normalize(captions_TD, dim=-1))
    return normalize(sums, dim=-1)


def _array(vectors: Tensor) -> np.ndarray:
    found: np.ndarray = vectors.float().cpu().numpy()
    return found
