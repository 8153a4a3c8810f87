"""Labelled data sets under evaluation: opened once for all checkpoints, and embedded by each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from vlcpctl.core.console import progress, warn
from vlcpctl.core.device_copies import copied_ahead
from vlcpctl.core.errors import BadInput, TooManySkipped
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.classification.data_sets import DataSet
from vlcpctl.data.classification.labelled_images import Flaw, LabelledImages
from vlcpctl.data.loading.eval_batches import LabelledBatch, LabelledBatches, read_labelled
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.distributed.serving import Work
from vlcpctl.evaluation.embedding import images_of
from vlcpctl.evaluation.embedding_cache import Cached, key_of
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.models.embed import embed_images, require_finite
from vlcpctl.models.encoders import Encoder

_FLAWS_SHOWN = 5


@dataclass(frozen=True)
class LabelledWork:
    """Work that embeds batches of labelled images: rows (B,), embeddings (B, D) and flaws."""

    batches: LabelledBatches
    workers: int

    def share(self, numbers: Sequence[int]) -> LabelledWork:
        """See `Work`."""
        return self

    def results(
        self, encoder: Encoder, numbers: Sequence[int]
    ) -> Iterator[tuple[Ids, Vectors, list[Flaw]]]:
        """See `Work`."""
        pins = encoder.device.type == "cuda"
        read = read_labelled(self.batches, self.workers, numbers, pins=pins)
        for batch in copied_ahead(read, encoder.device, LabelledBatch.moved):
            pixels = [batch.pixels] if len(batch.rows) else []
            yield batch.rows, embed_images(encoder, pixels), batch.flaws


@dataclass(frozen=True)
class Way:
    """How images are embedded: with which view of them, and by which work on their batches.

    `what` distinguishes the embeddings in the cache from those of another way.
    """

    what: str
    view: Callable[[ImageTransform], ImageTransform]  # of the model's own
    work: Callable[[LabelledBatches, int], Work[Encoder, tuple[Ids, Vectors, list[Flaw]]]]


USUAL = Way("images", lambda own: own, LabelledWork)  # unit embeddings of the model's own view


@dataclass(frozen=True)
class Images:
    """A split embedded by a checkpoint: N features, their classes and keys, and images left out.

    The keys identify images for the held-out draw.
    """

    feature_ND: Vectors
    label_N: Ids
    keys: list[str]
    skipped: int


@final
class LabelledSet:
    """A split of a labelled data set; with a limit, only its first images."""

    def __init__(self, data: DataSet, split: str, limit: int | None) -> None:
        self.data, self.split, self.limit = data, split, limit
        self.has_warned = False

    @property
    def name(self) -> str:
        """The data set's name in rows."""
        return self.data.name

    @cached_property
    def images(self) -> LabelledImages:
        """The labelled images, and the flaws of those that cannot be used."""
        return self.data.images(self.split)

    @cached_property
    def count(self) -> int:
        """How many images are read."""
        return min(len(self.images.labels), self.limit or len(self.images.labels))

    def embed(
        self, session: Session, what: str, way: Way = USUAL
    ) -> Iterator[tuple[Ids, Vectors, list[Flaw]]]:
        """Yield per batch the rows (B,), embeddings (B, D), and flaws of undecodable images.

        They are read from the cache if it has them, else stored there after the last batch. Raises
        Diverged for non-finite embeddings.
        """
        cache = session.compute.cache
        if cache is None:
            yield from self._embedded(session, what, way)
            return
        samples = [self.images.key(row) for row in range(self.count)]
        view = way.view(session.encoder.transform)
        about = images_of(self.data.content(self.split), self.split, samples, view)
        size = session.compute.batch_size
        key = key_of(session.checkpoint, session.compute.device, size, {**about, "what": way.what})
        found = cache.get(key)
        if found is not None:
            yield from self._stored(found, size)
            return
        parts = []
        for part in self._embedded(session, what, way):
            parts.append(part)
            yield part
        cache.put(key, _cached(parts, samples))

    def _embedded(
        self, session: Session, what: str, way: Way
    ) -> Iterator[tuple[Ids, Vectors, list[Flaw]]]:
        view, compute = way.view(session.encoder.transform), session.compute
        batches = LabelledBatches(self.images, self.count, view, compute.batch_size)
        embedded = session.results(way.work(batches, compute.worker_count), len(batches))
        with progress(f"{what}: images", self.count, "images") as bar:
            for rows, image_BD, flaws in embedded:
                require_finite(image_BD, f"{what}, images")
                yield rows, image_BD, flaws
                bar.advance(len(rows) + len(flaws))

    def _stored(self, found: Cached, size: int) -> Iterator[tuple[Ids, Vectors, list[Flaw]]]:
        """The same batches as those that were stored."""
        why_of: dict[int, str] = {int(row): why for row, why in found.facts.get("flaws", ())}
        kept = np.array([row for row in range(self.count) if row not in why_of], dtype=np.int64)
        for start in range(0, self.count, size):
            first, last = np.searchsorted(kept, [start, start + size])
            flaws = [
                Flaw(self.images.name(row), why_of[row])
                for row in range(start, min(start + size, self.count))
                if row in why_of
            ]
            yield kept[first:last], found.embeddings[first:last], flaws

    def images_by(self, session: Session, tolerance: Tolerance, way: Way = USUAL) -> Images:
        """The split embedded by the checkpoint of a session.

        Raises Diverged if embeddings are not finite, and TooManySkipped and BadInput as
        `check_flaws`.
        """
        what = f"{session.checkpoint} on {self.name} ({self.split})"
        flaws, rows, features = list(self.images.flaws), [], []
        for batch_rows, image_BD, bad in self.embed(session, what, way):
            flaws += bad
            rows.append(batch_rows)
            features.append(image_BD)
        self.check_flaws(flaws, tolerance)
        kept = np.concatenate(rows)
        keys = [self.images.key(row) for row in kept.tolist()]
        return Images(np.concatenate(features), self.images.labels[kept], keys, len(flaws))

    def check_flaws(self, flaws: Sequence[Flaw], tolerance: Tolerance) -> None:
        """Warn of the images left out, once for all checkpoints.

        Raises TooManySkipped if they are more than `tolerance`, and BadInput if none is left.
        """
        total = self.count + len(self.images.flaws)
        named = "; ".join(f"{flaw.name}: {flaw.why}" for flaw in flaws[:_FLAWS_SHOWN])
        more = f"; and {len(flaws) - _FLAWS_SHOWN} more" if len(flaws) > _FLAWS_SHOWN else ""
        if not tolerance.allows(len(flaws), total):
            raise TooManySkipped(
                f"{self.name}: {len(flaws)} of {total} images cannot be used, more than "
                f"--max-skip {tolerance.text}: {named}{more}"
            )
        if flaws and not self.has_warned:
            warn(f"{self.name}: left out {len(flaws)} of {total} images: {named}{more}")
        if len(flaws) == total:
            raise BadInput(f"{self.name}: no image is left to evaluate on")
        self.has_warned = True


def _cached(parts: Sequence[tuple[Ids, Vectors, list[Flaw]]], samples: Sequence[str]) -> Cached:
    """What to store of all batches; without flaws it is what retrieval stores of these images."""
    kept = np.concatenate([rows for rows, _, _ in parts])
    left_out = np.setdiff1d(np.arange(len(samples)), kept).tolist()
    flaws = [flaw.why for _, _, some in parts for flaw in some]
    facts = {"flaws": list(map(list, zip(left_out, flaws, strict=True)))} if flaws else {}
    return Cached(np.concatenate([vectors for _, vectors, _ in parts]), samples, facts)
