"""What a checkpoint computes of a split, one image and one caption at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.tasks.task import Split


def projections(checkpoint: Path, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The projections of all images, and of all their captions."""
    from vlcpctl.models import encoders

    encoder = encoders.load(checkpoint)
    encoder.module.eval()
    images, texts = [], []
    with torch.no_grad():
        for row in range(len(split)):
            pixels = torch.tensor(eval_view(decode_image(split.image(row)), encoder.transform))
            images.append(encoder.features(encoder.pixels(pixels[None]), None)[0][0].numpy())
            ids = (encoder.tokenize([text]) for text in split.captions(row))
            texts += [encoder.features(None, one)[1][0].numpy() for one in ids]
    return np.stack(images), np.stack(texts)


def unit(vectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found
