"""One unit vector per class: the mean of its prompts' embeddings.

Shapes: C classes, P prompts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vlcpctl.core.console import progress
from vlcpctl.evaluation.search.vectors import AnyVectors, Vectors
from vlcpctl.models.embed import require_finite, text_vectors
from vlcpctl.models.encoders import Encoder

_BATCH = 1 << 12  # prompts summed at once
_SHORTEST = 1e-12  # smallest length to divide by, as in torch's normalize


def class_embeddings(prompts: Sequence[Sequence[str]], text_PD: AnyVectors) -> Vectors:
    """(C, D) float32: per class the mean of its prompts' unit embeddings, normalised again.

    `text_PD` are those of the prompts of all classes, in order (prompt ensembling, Radford et al.,
    2021, section 3.1.4).
    """
    counts_C = np.array([len(own) for own in prompts])
    class_P = np.repeat(np.arange(len(prompts)), counts_C)
    sum_CD = np.zeros((len(prompts), text_PD.shape[1]))
    for start in range(0, len(class_P), _BATCH):
        some = slice(start, start + _BATCH)
        np.add.at(sum_CD, class_P[some], text_PD[some].astype(np.float64))
    mean_CD = sum_CD / counts_C[:, None]
    length_C = np.linalg.norm(mean_CD, axis=1, keepdims=True)
    unit_CD: Vectors = (mean_CD / np.maximum(length_C, _SHORTEST)).astype(np.float32)
    return unit_CD


def class_vectors(
    encoder: Encoder, prompts: Sequence[Sequence[str]], batch_size: int, what: str
) -> Vectors:
    """(C, D) float32 unit vectors for the prompts of C classes by a model.

    `what` names the model and the data in messages. Raises Diverged for non-finite embeddings.
    """
    texts = [text for own in prompts for text in own]
    batches = (texts[start : start + batch_size] for start in range(0, len(texts), batch_size))
    parts = []
    with progress(f"{what}: prompts", len(texts), "prompts") as bar:
        for part in text_vectors(encoder, batches):
            parts.append(part)
            bar.advance(len(part))
    class_CD = class_embeddings(prompts, np.concatenate(parts))
    require_finite(class_CD, f"{what}, class names")
    return class_CD
