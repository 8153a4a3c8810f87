"""Zero-shot classification: predict the class whose mean text embedding is nearest.

Shapes: B images, C classes, P texts at once, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vlcpctl.eval.gallery import Right
from vlcpctl.eval.ranks import Queries, Ranks, rank
from vlcpctl.eval.search import Ids, Index, Vectors
from vlcpctl.metrics.accuracy import CUTOFFS

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


def class_ranks(image_BD: Vectors, label_B: Ids, class_CD: Vectors, index: Index) -> Ranks:
    """The rank of each image's own class, up to TOP + 1; `index` holds the classes.

    Ties count as in retrieval: a class that is tied with the right one outranks it.
    """
    right = Right(np.arange(len(label_B) + 1), label_B)
    return rank(Queries(image_BD, class_CD, right), index, TOP)
