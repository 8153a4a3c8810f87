"""The probability of every image and text of a gallery that they are a pair, by a sigmoid's model.

Probabilities are computed in float64, in tiles, so that neither tiles nor devices change a metric.
Shapes: N galleries, I images, T texts, P pairs, K bins, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from vlcpctl.evaluation.search.count import device_of
from vlcpctl.evaluation.search.galleries import Embeddings, Gallery
from vlcpctl.evaluation.search.vectors import exact_scores
from vlcpctl.metrics.calibration import BINS, Judged, calibration, lowest, tally

_TILE, _GPU_TILE = 1024, 8192  # images, and texts, of a tile: 8 MB and 512 MB

Area = tuple[slice, slice]  # some images, and some texts


@dataclass(frozen=True)
class PairProbability:
    """What makes a probability of a similarity: sigmoid(scale x.y + bias)."""

    scale: float
    bias: float

    @classmethod
    def of(cls, weights: Mapping[str, Tensor]) -> PairProbability | None:
        """That of a model with these weights; None if it is not trained with a sigmoid loss."""
        bias = weights.get("logit_bias")
        if bias is None:
            return None
        return cls(weights["logit_scale"].double().exp().item(), bias.double().item())

    def __call__(self, similarities: Tensor) -> Tensor:
        """The probabilities, in place of the similarities."""
        return similarities.mul_(self.scale).add_(self.bias).sigmoid_()


def calibrations(
    gallery: Gallery, vectors: Embeddings, judge: PairProbability, device: str
) -> list[dict[str, float]]:
    """The metrics of `calibration` in the galleries of the first 1, 2, ... N parts.

    `vectors` are the embeddings of the entries; `device` is auto, cpu or cuda.
    """
    areas = [
        # What a part adds: its images with all texts so far, and older images with its texts.
        [
            (slice(images, image_end), slice(0, text_end)),
            (slice(0, images), slice(texts, text_end)),
        ]
        for (images, texts), (image_end, text_end) in pairwise([(0, 0), *gallery.ends_M2.tolist()])
    ]
    return _measured(gallery, vectors, areas, judge, device)


def calibration_beside(
    gallery: Gallery, vectors: Embeddings, judge: PairProbability, device: str
) -> dict[str, float]:
    """The metrics of `calibration` in a gallery, perhaps with distractors behind its own entries.

    Each of its own images and texts is judged with every text, or image; distractors are not judged
    with each other: they may belong together.
    """
    images, texts = gallery.ends_M2[-1].tolist()
    areas = [(slice(0, images), slice(0, len(vectors.text_TD)))]
    areas += [(slice(images, len(vectors.image_ID)), slice(0, texts))]
    return _measured(gallery, vectors, [areas], judge, device)[0]


def _measured(
    gallery: Gallery,
    vectors: Embeddings,
    areas: Sequence[Sequence[Area]],
    judge: PairProbability,
    device: str,
) -> list[dict[str, float]]:
    place = device_of(device)
    size = _TILE if place.type == "cpu" else _GPU_TILE
    scores = exact_scores(*vectors, *gallery.pairs_P2.T)
    true_P = judge(torch.from_numpy(scores)).numpy()
    every, measured = tally(np.empty(0)), []
    for part, added in enumerate(areas):
        for area in added:
            for tile_of in _tiles(area, size):
                every += _judged(vectors, tile_of, judge, place)
        measured.append(calibration(every, tally(true_P[gallery.part_P <= part]).count_K))
    return measured


@torch.inference_mode()
def _judged(vectors: Embeddings, tile: Area, judge: PairProbability, place: torch.device) -> Judged:
    """The probabilities of a tile; most are in the lowest bin, and stay on the device."""
    image_id, text_td = (
        torch.from_numpy(side[rows].astype(np.float64)).to(place)
        for side, rows in zip(vectors, tile, strict=True)
    )
    probabilities = judge(image_id @ text_td.T)
    is_low = probabilities * BINS < 1
    rest = tally(probabilities[~is_low].cpu().numpy())
    return rest + lowest(int(is_low.sum()), float(probabilities.mul_(is_low).sum()))


def _tiles(area: Area, size: int) -> Iterator[Area]:
    images, texts = area
    for image in range(images.start, images.stop, size):
        for text in range(texts.start, texts.stop, size):
            rows = slice(image, min(image + size, images.stop))
            yield rows, slice(text, min(text + size, texts.stop))
