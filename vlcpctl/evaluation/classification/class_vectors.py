"""Zero-shot classification: one unit vector per class, and the rank of the right class.

A class is the mean of its prompts' embeddings; the nearest class is predicted.
Shapes: B images, C classes, P texts at once, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from vlcpctl.core.console import progress
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.index import Ids, Index, Vectors
from vlcpctl.evaluation.search.ranks import Queries, Ranks, rank
from vlcpctl.metrics.accuracy import CUTOFFS
from vlcpctl.models.embed import embed_texts, require_finite
from vlcpctl.models.encoders import Encoder

TOP = max(CUTOFFS)
_SHORTEST = 1e-12  # smallest length to divide by, as in torch's normalize


def class_embeddings(parts: Iterable[tuple[Ids, Vectors]], classes: int, width: int) -> Vectors:
    """(C, D) float32: per class the mean of its texts' unit embeddings, normalised again.

    Each part is the classes (P,) of some texts and their unit embeddings (P, D); parts are summed
    as they come, in C x D of memory (prompt ensembling, Radford et al., 2021, section 3.1.4).
    """
    sum_CD = np.zeros((classes, width))
    count_C = np.zeros(classes)
    for class_P, text_PD in parts:
        np.add.at(sum_CD, class_P, text_PD.astype(np.float64))
        np.add.at(count_C, class_P, 1)
    mean_CD = sum_CD / count_C[:, None]
    length_C = np.linalg.norm(mean_CD, axis=1, keepdims=True)
    unit_CD: Vectors = (mean_CD / np.maximum(length_C, _SHORTEST)).astype(np.float32)
    return unit_CD


def class_queries(image_BD: Vectors, label_B: Ids, class_CD: Vectors) -> Queries:
    """The images as queries among the classes; the right answer of each is its own class."""
    return Queries(image_BD, class_CD, RightAnswers(np.arange(len(label_B) + 1), label_B))


def class_ranks(image_BD: Vectors, label_B: Ids, class_CD: Vectors, index: Index) -> Ranks:
    """The rank of each image's own class, up to TOP + 1; `index` holds the classes.

    Ties count as in retrieval: a class that is tied with the right one outranks it.
    """
    return rank(class_queries(image_BD, label_B, class_CD), index, TOP)


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
