"""Labelled data sets under evaluation: their images, and a vector for each class.

A data set is opened once for all checkpoints, and embedded by each.
Shapes: N images, B of a batch, C classes, P prompts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, final

import numpy as np
from torch import Tensor

from vlcpctl.core.console import progress, warn
from vlcpctl.core.devices import copied_ahead
from vlcpctl.core.errors import BadInput, TooManySkipped
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.classification.data_sets import DataSet
from vlcpctl.data.classification.labelled_images import Flaw, LabelledImages
from vlcpctl.data.loading.eval_batches import (
    AugmentedBatches,
    LabelledBatch,
    LabelledBatches,
    read_views,
)
from vlcpctl.data.tasks.samples import Tolerance
from vlcpctl.evaluation.embedding import Batch, Things, embedded, images_of
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.search.vectors import AnyVectors, Ids, Vectors
from vlcpctl.models.embed import embed_images, require_finite, text_vectors
from vlcpctl.models.encoders import Encoder

_FLAWS_SHOWN = 5
_PROMPTS = 1 << 12  # summed at once
_SHORTEST = 1e-12  # smallest length to divide by, as in torch's normalize
Part = tuple[Ids, Vectors, list[Flaw]]  # rows (B,), embeddings (B, D), images left out


class Way(NamedTuple):
    """How images are embedded: with which view of them, and by which function of their pixels.

    `what` distinguishes the embeddings in the cache from those of another way.
    """

    what: str
    view: Callable[[ImageTransform], ImageTransform]  # of the model's own
    embed: Callable[[Encoder, Tensor], Vectors]


def own_view(own: ImageTransform) -> ImageTransform:
    """The model's own view of an image."""
    return own


def embed_batch(encoder: Encoder, pixels: Tensor) -> Vectors:
    """(B, D) unit embeddings of images (B, H, W, 3)."""
    return embed_images(encoder, [pixels] if len(pixels) else [])


USUAL = Way("images", own_view, embed_batch)


def parts_of(
    batches: LabelledBatches | AugmentedBatches,
    workers: int,
    way: Way,
    encoder: Encoder,
    numbers: Sequence[int],
) -> Iterator[Part]:
    """Embed batches of labelled images; what comes before the model is pickled for a pool."""
    read = read_views(batches, workers, numbers, pins=encoder.device.type == "cuda")
    for batch in copied_ahead(read, encoder.device, LabelledBatch.moved):
        yield batch.rows, way.embed(encoder, batch.pixels), batch.flaws


@dataclass(frozen=True)
class Images:
    """A split embedded by a checkpoint: N features, their classes and keys, and images left out.

    The keys identify images for the held-out draw, and in files of ranks.
    """

    feature_ND: AnyVectors
    label_N: Ids
    keys: list[str]
    skipped: int


@final
class LabelledSet:
    """A split of a labelled data set; with a limit, only its first images."""

    def __init__(self, data: DataSet, split: str, limit: int | None) -> None:
        self.data, self.split, self.limit = data, split, limit
        self.has_warned = False

    @cached_property
    def images(self) -> LabelledImages:
        """The labelled images, and the flaws of those that cannot be used."""
        return self.data.images(self.split)

    @cached_property
    def count(self) -> int:
        """How many images are read."""
        return min(len(self.images.labels), self.limit or len(self.images.labels))

    def embedded(self, session: Session, tolerance: Tolerance, way: Way = USUAL) -> Images:
        """The split embedded by the checkpoint of a session; for a shard, nothing, see `embedded`.

        Raises Diverged if embeddings are not finite, and TooManySkipped and BadInput as
        `check_flaws`.
        """
        keys = [self.images.key(row) for row in range(self.count)]
        evaluator, view = session.evaluator, way.view(session.encoder.transform)
        about = images_of(self.data.content(self.split), self.split, keys, view)
        about |= {"what": way.what}
        batches = LabelledBatches(self.images, self.count, view, evaluator.batch_size)
        batches.kept = evaluator.kept(about)
        work = partial(parts_of, batches, evaluator.worker_count, way)

        def computed(numbers: range) -> Iterator[Batch]:
            results = zip(numbers, session.results(work, numbers), strict=True)
            for number, (rows, image_BD, flaws) in results:
                first = number * evaluator.batch_size
                own = range(first, min(first + evaluator.batch_size, self.count))
                left_out = np.setdiff1d(own, rows).tolist()
                yield image_BD, dict(zip(left_out, (flaw.why for flaw in flaws), strict=True))

        what = f"{session.checkpoint} on {self.data.name} ({self.split})"
        found = embedded(
            session, Things(about, computed, self.count, what, "images", keys, skips=True)
        )
        flaws = [Flaw(self.images.name(row), why) for row, why in found.flaws.items()]
        self.check_flaws([*self.images.flaws, *flaws], tolerance)
        kept = np.setdiff1d(np.arange(self.count), list(found.flaws))
        return Images(
            found.vectors,
            self.images.labels[kept],
            [keys[row] for row in kept.tolist()],
            len(flaws) + len(self.images.flaws),
        )

    def check_flaws(self, flaws: Sequence[Flaw], tolerance: Tolerance) -> None:
        """Warn of the images left out, once for all checkpoints.

        Raises TooManySkipped if they are more than `tolerance`, and BadInput if none is left.
        """
        total = self.count + len(self.images.flaws)
        named = "; ".join(f"{flaw.name}: {flaw.why}" for flaw in flaws[:_FLAWS_SHOWN])
        more = f"; and {len(flaws) - _FLAWS_SHOWN} more" if len(flaws) > _FLAWS_SHOWN else ""
        if not tolerance.allows(len(flaws), total):
            raise TooManySkipped(
                f"{self.data.name}: {len(flaws)} of {total} images cannot be used, more than "
                f"--max-skip {tolerance.text}: {named}{more}"
            )
        if flaws and not self.has_warned:
            warn(f"{self.data.name}: left out {len(flaws)} of {total} images: {named}{more}")
        if len(flaws) == total:
            raise BadInput(f"{self.data.name}: no image is left to evaluate on")
        self.has_warned = True


def class_embeddings(prompts: Sequence[Sequence[str]], text_PD: AnyVectors) -> Vectors:
    """(C, D) float32: per class the mean of its prompts' unit embeddings, normalised again.

    `text_PD` are those of the prompts of all classes, in order (prompt ensembling, Radford et al.,
    2021, section 3.1.4).
    """
    counts_C = np.array([len(own) for own in prompts])
    class_P = np.repeat(np.arange(len(prompts)), counts_C)
    sum_CD = np.zeros((len(prompts), text_PD.shape[1]))
    for start in range(0, len(class_P), _PROMPTS):
        some = slice(start, start + _PROMPTS)
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
