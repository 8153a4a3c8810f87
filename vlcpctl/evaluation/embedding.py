"""Embed a split's distinct images and texts, or fuse its distinct pairs, in batches.

The batches are shared by the processes of a pool; a batch is never divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import progress
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.loading.eval_batches import EvalImages, read_images
from vlcpctl.data.precomputed.vector_files import Matrix, write_vectors
from vlcpctl.distributed.serving import Work
from vlcpctl.evaluation.embedding_cache import Cached, Key, key_of
from vlcpctl.evaluation.evaluator import Compute
from vlcpctl.evaluation.search.gallery import Embeddings
from vlcpctl.evaluation.search.index import AnyVectors, Gathered, Vectors
from vlcpctl.evaluation.search.items import FusedFeatures
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.files.ids import content_id
from vlcpctl.models.embed import image_vectors, pair_vectors, require_finite, text_vectors
from vlcpctl.models.encoders import Encoder, SavedEncoder
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

_VECTORS = ".npy"  # of what shards have embedded


def embed(encoder: Encoder, source: EvalSplit, checkpoint: Path, compute: Compute) -> Embeddings:
    """The unit embeddings of a split: (I, D) of its images and (T, D) of its texts, float32.

    `encoder` is the model of `checkpoint`. They are read from the cache if it has them, else stored
    there. Raises Diverged for non-finite embeddings.
    """
    layout, what = source.layout, f"{checkpoint} on {source.task.slug}"
    images = EvalImages(source.split, layout.first_row_I, encoder.transform, compute.batch_size)
    job = _Embedding(encoder, checkpoint, compute)
    firsts = [source.split.keys[row] for row in layout.first_row_I.tolist()]
    work = ImageBatches(images, compute.worker_count)
    image_ID = job.cached(
        images_of(source.task.content, source.name, firsts, encoder.transform),
        firsts,
        _Batches(work, f"{what}: images", len(firsts)),
        f"{what}, images",
    )
    texts = text_batches(layout.texts, compute.batch_size)
    samples = source.split.keys[: len(layout.image_of_N)]
    text_TD = job.cached(
        _of("texts", source.task.content, source.name, samples),
        samples,
        _Batches(texts, f"{what}: texts", len(layout.texts)),
        f"{what}, texts",
    )
    return Embeddings(layout, image_ID, text_TD)


def fuse(
    encoder: FusionEncoder, source: EvalSplit, checkpoint: Path, compute: Compute
) -> FusedFeatures:
    """The fused features (P, D) of a split's distinct pairs, float32.

    `encoder` is the model of `checkpoint`. They are read from the cache if it has them, else stored
    there. Raises Diverged for non-finite features.
    """
    items, what = source.items, f"{checkpoint} on {source.task.slug} ({source.name})"
    images = EvalImages(source.split, items.first_row_P, encoder.transform, compute.batch_size)
    texts = text_batches(items.texts, compute.batch_size)
    pairs = PairBatches(ImageBatches(images, compute.worker_count), texts)
    job = _Embedding(encoder, checkpoint, compute)
    firsts = [source.split.keys[row] for row in items.first_row_P.tolist()]
    about = _of("pairs", source.task.content, source.name, firsts)
    fused_PD = job.cached(
        {**about, "transform": encoder.transform.facts()},
        firsts,
        _Batches(pairs, f"{what}: pairs", len(items.texts)),
        f"{what}, pairs",
    )
    return FusedFeatures(items, fused_PD)


def images_of(
    data: str, split: str, samples: Sequence[str], transform: ImageTransform
) -> dict[str, Any]:
    """What identifies the images of these samples in the cache: every evaluator shares them.

    `data` is the content id of the data. The order of the samples counts: it decides which images
    are in one batch.
    """
    return {**_of("images", data, split, samples), "transform": transform.facts()}


def _of(what: str, data: str, split: str, samples: Sequence[str]) -> dict[str, Any]:
    return {"what": what, "data": data, "split": split, "samples": content_id(list(samples))}


@dataclass(frozen=True)
class _Batches:
    """Batches of `count` images, texts or pairs, and the label of their progress."""

    work: Work[Encoder, Vectors]
    label: str
    count: int


@dataclass(frozen=True)
class _Embedding:
    """A model, its checkpoint, and the processes that embed with it."""

    encoder: Encoder
    checkpoint: Path
    compute: Compute

    def cached(
        self, about: dict[str, Any], samples: Sequence[str], batches: _Batches, what: str
    ) -> AnyVectors:
        """The vectors `about` something, of all `samples`; `batches` compute them if need be.

        `what` names them in messages. For a shard, they are stored, and none are returned. Raises
        Diverged if they are not finite.
        """
        compute, cache = self.compute, self.compute.cache
        if compute.embeds_share:
            self._keep(about, batches, what)
            return self._none()
        stored = self._stored(about)
        if stored is not None:
            return stored
        vectors = self._whole(about, batches, what)
        if cache is not None and not compute.searches_share:
            cache.put(self._key(about), Cached(vectors[:], samples))
        return vectors

    def _stored(self, about: dict[str, Any]) -> Vectors | None:
        """What the cache has; None if it has nothing of this, or there is none."""
        cache = self.compute.cache
        found = None if cache is None else cache.get(self._key(about))
        # Labelled images that cannot be decoded are left out there; here they are refused.
        return None if found is None or found.facts else found.embeddings

    def _key(self, about: dict[str, Any]) -> Key:
        return key_of(self.checkpoint, self.compute.device, self.compute.batch_size, about)

    def _whole(self, about: dict[str, Any], batches: _Batches, what: str) -> AnyVectors:
        """All vectors; if there are shards, theirs, mapped."""
        shards = self.compute.shards
        if shards is not None:
            files = shards.files(self._of_model(about))
            return Gathered([(Matrix(file, np.float32).mapped(), None) for file in files])
        numbers = range(self._count(batches))
        vectors = np.concatenate([*self._parts(batches, numbers)] or [self._none()])
        require_finite(vectors, what)
        return vectors

    def _keep(self, about: dict[str, Any], batches: _Batches, what: str) -> None:
        """Store what a shard has of the vectors, from the cache or computed."""
        shards, size = self.compute.shards, self.compute.batch_size
        assert shards is not None
        share = shards.share(self._count(batches))
        rows = slice(
            share.start * size, max(share.start * size, min(share.stop * size, batches.count))
        )

        def vectors() -> Iterator[Vectors]:
            stored = self._stored(about)
            if stored is not None:
                yield stored[rows]
                return
            for part in self._parts(batches, share):
                require_finite(part, what)
                yield part

        shape = (rows.stop - rows.start, self.encoder.width)
        shards.keep_share(
            self._of_model(about),
            _VECTORS,
            lambda file: write_vectors(file, vectors(), shape, np.float32),
        )

    def _of_model(self, about: dict[str, Any]) -> dict[str, Any]:
        return {"checkpoint": CheckpointManifest.read(self.checkpoint).content, **about}

    def _count(self, batches: _Batches) -> int:
        return -(-batches.count // self.compute.batch_size)

    def _parts(self, batches: _Batches, numbers: range) -> Iterator[Vectors]:
        """(B, D) float32 of each batch with these numbers, with progress."""
        pool, source = self.compute.pool, SavedEncoder(self.checkpoint)
        size, unit = self.compute.batch_size, batches.label.rsplit(" ", 1)[1]
        count = max(min(numbers.stop * size, batches.count) - numbers.start * size, 0)
        with progress(batches.label, count, unit) as bar:
            for part in pool.results(source, self.encoder, batches.work, numbers):
                yield part
                bar.advance(len(part))

    def _none(self) -> Vectors:
        return np.empty((0, self.encoder.width), dtype=np.float32)


@dataclass(frozen=True)
class ImageBatches:
    """Work that embeds batches of images: (B, D) float32 each."""

    images: EvalImages
    workers: int

    def share(self, numbers: Sequence[int]) -> ImageBatches:
        """See `Work`."""
        return self

    def results(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Vectors]:
        """See `Work`; raises BadInput if an image cannot be read or decoded."""
        yield from image_vectors(encoder, self.read(encoder, numbers))

    def read(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Tensor]:
        """The batches of images, (B, H, W, 3) bytes each, pinned for a GPU."""
        pins = encoder.device.type == "cuda"
        return read_images(self.images, self.workers, numbers, pins=pins)


@dataclass(frozen=True)
class TextBatches:
    """Work that embeds batches of texts, by their numbers: (B, D) float32 each."""

    batches: Mapping[int, list[str]]

    def share(self, numbers: Sequence[int]) -> TextBatches:
        """See `Work`."""
        return TextBatches({number: self.batches[number] for number in numbers})

    def results(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Vectors]:
        """See `Work`."""
        yield from text_vectors(encoder, (self.batches[number] for number in numbers))


@dataclass(frozen=True)
class PairBatches:
    """Work that fuses batches of images with batches of texts: (B, C) float32 each."""

    images: ImageBatches
    texts: TextBatches

    def share(self, numbers: Sequence[int]) -> PairBatches:
        """See `Work`."""
        return PairBatches(self.images, self.texts.share(numbers))

    def results(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Vectors]:
        """See `Work`; raises BadInput if an image cannot be read or decoded."""
        assert encoder.family == "fusion"
        texts = (self.texts.batches[number] for number in numbers)
        images = self.images.read(encoder, numbers)
        yield from pair_vectors(encoder, zip(images, texts, strict=True))


def text_batches(texts: Sequence[str], size: int) -> TextBatches:
    """Batches of `size` texts in their order; the last may have fewer."""
    starts = range(0, len(texts), size)
    return TextBatches(
        {number: list(texts[start : start + size]) for number, start in enumerate(starts)}
    )
