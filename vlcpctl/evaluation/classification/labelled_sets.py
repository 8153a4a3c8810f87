"""Labelled data sets under evaluation: opened once for all checkpoints, and embedded by each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from vlcpctl.core.console import progress, warn
from vlcpctl.core.devices import copied_ahead
from vlcpctl.core.errors import BadInput, TooManySkipped
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.classification.data_sets import DataSet
from vlcpctl.data.classification.labelled_images import Flaw, LabelledImages
from vlcpctl.data.loading.eval_batches import LabelledBatch, LabelledBatches, read_labelled
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.distributed.serving import Work
from vlcpctl.evaluation.embedding import images_of
from vlcpctl.evaluation.embedding_cache import Cached, Key, key_of
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.files.parts import Parts, Result
from vlcpctl.models.embed import embed_images, require_finite
from vlcpctl.models.encoders import Encoder

_FLAWS_SHOWN = 5
Batch = tuple[Ids, Vectors, list[Flaw]]  # rows (B,), embeddings (B, D), images left out


@dataclass(frozen=True)
class LabelledWork:
    """Work that embeds batches of labelled images: rows (B,), embeddings (B, D) and flaws."""

    batches: LabelledBatches
    workers: int

    def share(self, numbers: Sequence[int]) -> LabelledWork:
        """See `Work`."""
        return self

    def results(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Batch]:
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
    work: Callable[[LabelledBatches, int], Work[Encoder, Batch]]


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

    def embed(self, session: Session, what: str, way: Way = USUAL) -> Iterator[Batch]:
        """Yield per batch the rows (B,), embeddings (B, D), and flaws of undecodable images.

        They are read from the cache if it has them, else stored there after the last batch. Raises
        Diverged for non-finite embeddings.
        """
        cache, numbers = session.compute.cache, self._numbers(session)
        if cache is None:
            yield from self._embedded(session, what, way)
            return
        key = _key(session, self._about(session, way))
        found = cache.get(key)
        if found is not None:
            yield from self._stored(session, found, numbers)
            return
        parts = []
        for part in self._embedded(session, what, way):
            parts.append(part)
            yield part
        cache.put(key, _cached(parts, self._samples()))

    def keep(self, session: Session, what: str, shards: Parts) -> None:
        """Store a shard's share of the batches that `embed` yields when the shards are joined."""
        about, cache = self._about(session, USUAL), session.compute.cache

        def results(numbers: range) -> Iterator[Result]:
            found = None if cache is None else cache.get(_key(session, about))
            if found is None:
                batches = self._computed(session, what, USUAL, numbers)
            else:
                batches = self._stored(session, found, numbers)
            for rows, image_BD, flaws in batches:
                yield rows, image_BD, np.array([flaw.why for flaw in flaws], dtype=np.str_)

        shards.keep_arrays(about, len(self._numbers(session)), results)

    def _embedded(self, session: Session, what: str, way: Way) -> Iterator[Batch]:
        """All batches, joined from shards if there are any."""
        numbers, shards = self._numbers(session), session.compute.shards
        if shards is None:
            yield from self._computed(session, what, way, numbers)
            return
        kept = shards.arrays(self._about(session, way), len(numbers))
        for number, (rows, image_BD, whys) in zip(numbers, kept, strict=True):
            left_out = np.setdiff1d(self._rows_of(session, number), rows).tolist()
            flaws = zip(left_out, whys.tolist(), strict=True)
            yield rows, image_BD, [Flaw(self.images.name(row), why) for row, why in flaws]

    def _computed(self, session: Session, what: str, way: Way, numbers: range) -> Iterator[Batch]:
        """The batches with these numbers, with progress. Raises Diverged as `embed` does."""
        view, compute = way.view(session.encoder.transform), session.compute
        batches = LabelledBatches(self.images, self.count, view, compute.batch_size)
        embedded = session.results(way.work(batches, compute.worker_count), numbers)
        images = sum(len(self._rows_of(session, number)) for number in numbers)
        with progress(f"{what}: images", images, "images") as bar:
            for rows, image_BD, flaws in embedded:
                require_finite(image_BD, f"{what}, images")
                yield rows, image_BD, flaws
                bar.advance(len(rows) + len(flaws))

    def _stored(self, session: Session, found: Cached, numbers: range) -> Iterator[Batch]:
        """The batches with these numbers, of those that were stored."""
        why_of: dict[int, str] = {int(row): why for row, why in found.facts.get("flaws", ())}
        kept = np.array([row for row in range(self.count) if row not in why_of], dtype=np.int64)
        for rows in (self._rows_of(session, number) for number in numbers):
            first, last = np.searchsorted(kept, [rows.start, rows.stop])
            flaws = [Flaw(self.images.name(row), why_of[row]) for row in rows if row in why_of]
            yield kept[first:last], found.embeddings[first:last], flaws

    def _numbers(self, session: Session) -> range:
        """The numbers of all batches."""
        return range(-(-self.count // session.compute.batch_size))

    def _rows_of(self, session: Session, number: int) -> range:
        """The rows of the batch with this number."""
        size = session.compute.batch_size
        return range(number * size, min((number + 1) * size, self.count))

    def _about(self, session: Session, way: Way) -> dict[str, Any]:
        """What identifies the embeddings by the checkpoint of a session."""
        view = way.view(session.encoder.transform)
        about = images_of(self.data.content(self.split), self.split, self._samples(), view)
        return {"checkpoint": session.job.manifest.content, **about, "what": way.what}

    def _samples(self) -> list[str]:
        """The keys of all images."""
        return [self.images.key(row) for row in range(self.count)]

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


def _key(session: Session, about: Mapping[str, Any]) -> Key:
    compute = session.compute
    return key_of(session.checkpoint, compute.device, compute.batch_size, about)


def _cached(parts: Sequence[Batch], samples: Sequence[str]) -> Cached:
    """What to store of all batches; without flaws it is what retrieval stores of these images."""
    kept = np.concatenate([rows for rows, _, _ in parts])
    left_out = np.setdiff1d(np.arange(len(samples)), kept).tolist()
    flaws = [flaw.why for _, _, some in parts for flaw in some]
    facts = {"flaws": list(map(list, zip(left_out, flaws, strict=True)))} if flaws else {}
    return Cached(np.concatenate([vectors for _, vectors, _ in parts]), samples, facts)
