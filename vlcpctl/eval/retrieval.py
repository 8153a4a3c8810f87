"""Cross-modal retrieval: recalls of texts for images and of images for texts in one gallery."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vlcpctl.core.errors import Diverged
from vlcpctl.eval.gallery import Gallery
from vlcpctl.eval.ranks import Queries, rank
from vlcpctl.eval.search import OpenIndex, Vectors
from vlcpctl.metrics.recall import CUTOFFS, count_touched, recalls

TOP = max(CUTOFFS)


@dataclass(frozen=True)
class Result:
    """The recalls in percent; `n_ties` queries would differ if they won their ties."""

    metrics: dict[str, float]
    n_images: int
    n_texts: int
    n_ties: int


def cross_modal(gallery: Gallery, open_index: OpenIndex) -> Result:
    """Recalls with every image as a query for texts, and every text as a query for images."""
    images, texts = gallery.image_ID, gallery.text_TD
    i2t = rank(Queries(images, texts, gallery.texts_of_images()), open_index(texts), TOP)
    t2i = rank(Queries(texts, images, gallery.images_of_texts()), open_index(images), TOP)
    return Result(
        metrics=recalls(i2t.worst, t2i.worst),
        n_images=len(images),
        n_texts=len(texts),
        n_ties=count_touched(i2t.worst, i2t.best) + count_touched(t2i.worst, t2i.best),
    )


def require_finite(vectors: Vectors, what: str) -> None:
    """Raise Diverged if embeddings (N, D) are not finite, naming `what` they are of.

    A search would silently never return them.
    """
    is_finite = np.isfinite(vectors).all(axis=1)
    if not is_finite.all():
        count = int(np.count_nonzero(~is_finite))
        raise Diverged(
            f"{what}: contains non-finite embeddings ({count} of {len(vectors)} are NaN or "
            "infinite); the model diverged, use an earlier checkpoint"
        )
