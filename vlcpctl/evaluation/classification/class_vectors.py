"""Zero-shot classification: one unit vector per class, and the rank of the right class.

A class is the mean of its prompts' embeddings; the nearest class is predicted.
Shapes: B images, C classes, P texts at once, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from vlcpctl.core.console import progress
from vlcpctl.evaluation.embedding import TextBatches, text_batches
from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.evaluation.search.queries import Queries
from vlcpctl.evaluation.search.ranks import RankSearch, search_ranks
from vlcpctl.metrics.accuracy import CUTOFFS
from vlcpctl.models.embed import require_finite
from vlcpctl.models.encoders import Encoder

TOP = max(CUTOFFS)
Results = Callable[[TextBatches, Sequence[int]], Iterator[Vectors]]  # of batches, in order
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


def class_ranks(
    image_BD: Vectors, label_B: Ids, class_CD: Vectors, device: str, *, is_exact: bool = False
) -> RankSearch:
    """The rank of each image's own class, up to TOP + 1 or exact.

    Ties count as in retrieval: a class that is tied with the right one outranks it.
    """
    right = RightAnswers(np.arange(len(label_B) + 1), label_B)
    queries = Queries(image_BD, class_CD, right)
    return search_ranks(queries, Backend(device), TOP, is_exact=is_exact)


def class_vectors(
    encoder: Encoder,
    prompts: list[list[str]],
    batch_size: int,
    what: str,
    results: Results | None = None,
) -> Vectors:
    """(C, D) float32 unit vectors for the prompts of C classes.

    `what` names the model and the data in messages; `results` embeds batches in several processes.
    Raises Diverged for non-finite embeddings.
    """
    results = results or (lambda work, numbers: work.results(encoder, numbers))
    parts = _embedded(results, prompts, batch_size, what)
    class_CD = class_embeddings(parts, len(prompts), encoder.width)
    require_finite(class_CD, f"{what}, class names")
    return class_CD


def prompt_batches(prompts: Sequence[Sequence[str]], size: int) -> TextBatches:
    """The prompts of all classes in batches, as `class_vectors` embeds them."""
    return text_batches([text for own in prompts for text in own], size)


def _embedded(
    results: Results, prompts: list[list[str]], batch_size: int, what: str
) -> Iterator[tuple[Ids, Vectors]]:
    owners = [number for number, own in enumerate(prompts) for _ in own]
    work = prompt_batches(prompts, batch_size)
    with progress(f"{what}: prompts", len(owners), "prompts") as bar:
        for number, text_PD in enumerate(results(work, range(len(work.batches)))):
            start = number * batch_size
            yield np.array(owners[start : start + batch_size], dtype=np.int64), text_PD
            bar.advance(len(text_PD))
