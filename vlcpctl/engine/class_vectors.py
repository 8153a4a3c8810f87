"""Embed the prompts of classes: one unit vector per class, averaged over its prompts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vlcpctl.core.console import progress
from vlcpctl.eval.retrieval import require_finite
from vlcpctl.eval.search import Ids, Vectors
from vlcpctl.eval.zeroshot import class_embeddings
from vlcpctl.models.embed import embed_texts
from vlcpctl.models.encoders import Encoder


def class_vectors(
    encoder: Encoder, prompts: list[list[str]], batch_size: int, what: str
) -> Vectors:
    """(C, D) float32 unit vectors for the prompts of C classes.

    `what` names the model and the data in messages. Raises Diverged for non-finite embeddings.
    """
    parts = _embedded(encoder, prompts, batch_size, what)
    class_CD = class_embeddings(parts, len(prompts), encoder.width)
    require_finite(class_CD, f"{what}, class names")
    return class_CD


def _embedded(
    encoder: Encoder, prompts: list[list[str]], batch_size: int, what: str
) -> Iterator[tuple[Ids, Vectors]]:
    owners = [number for number, own in enumerate(prompts) for _ in own]
    texts = [text for own in prompts for text in own]
    with progress(f"{what}: prompts", len(texts), "prompts") as bar:
        for start in range(0, len(texts), batch_size):
            part = slice(start, start + batch_size)
            class_P = np.array(owners[part], dtype=np.int64)
            yield class_P, embed_texts(encoder, [texts[part]])
            bar.advance(len(class_P))
