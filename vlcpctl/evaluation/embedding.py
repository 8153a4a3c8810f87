"""Embed the distinct images and texts of samples, or their distinct pairs, in batches.

The batches are shared by the processes of a pool, and by shards; a batch is never divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from vlcpctl.core.console import progress
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.loading.eval_batches import EvalImages, read_views
from vlcpctl.data.precomputed.store import VectorFile, write_vectors
from vlcpctl.distributed.pool import Compute
from vlcpctl.evaluation.embedding_cache import Cached, Key
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.samples import Samples
from vlcpctl.evaluation.search.galleries import Embeddings
from vlcpctl.evaluation.search.vectors import AnyVectors, Gathered, Vectors
from vlcpctl.files.ids import content_id
from vlcpctl.models.embed import image_vectors, pair_vectors, require_finite, text_vectors
from vlcpctl.models.encoders import Encoder

Batch = tuple[Vectors, dict[int, str]]  # (B, D), and why things of it are left out, by number


class Embedded(NamedTuple):
    """Embeddings (N, D) float32, and why further things have none, by their number among all."""

    vectors: AnyVectors
    flaws: Mapping[int, str]


@dataclass(frozen=True)
class Things:
    """`count` things of one `kind` to embed: `batches` computes those with some numbers.

    `what` names the model and the data in messages; `samples` are the keys of what the things are
    of. With `skips`, those that cannot be read are left out; without `caches`, the cache is not
    asked.
    """

    batches: Callable[[range], Iterator[Batch]]
    count: int
    what: str
    kind: str  # images, texts, pairs or prompts
    samples: Sequence[str] = ()
    skips: bool = False
    caches: bool = True


def embed(session: Session, samples: Samples) -> Embeddings:
    """The unit embeddings of samples by the session's checkpoint, computed once.

    They are read from the cache if it has them, else stored there. For a shard, its share is
    stored, and none are returned. Raises Diverged for non-finite embeddings.
    """

    def embed_it() -> Embeddings:
        slug, keys, view = samples.task.slug, samples.split.keys, session.encoder.transform
        images, texts = samples.captioned.images, samples.captioned.texts
        what, data, split = f"{session.checkpoint} on {slug}", samples.task.content, samples.name
        firsts, own = [keys[row] for row in images.first_D.tolist()], keys[: len(samples)]
        of_images = images_of(data, split, firsts, view)
        work = ImageBatches.of(session, samples, images.first_D, of_images)
        each_image = Things(_plain(session, work), len(images.names), what, "images", firsts)
        each_text = texts_of(session, texts.names, what, "texts", own)
        with session.timed("embed", task=slug, images=each_image.count, texts=each_text.count):
            return Embeddings(
                embedded(session, of_images, each_image).vectors,
                embedded(session, _of("texts", data, split, own), each_text).vectors,
            )

    return session.once(samples, embed_it)


def fuse(session: Session, samples: Samples) -> AnyVectors:
    """The fused features (P, D) of the distinct pairs of samples, computed once; see `embed`."""

    def fuse_it() -> AnyVectors:
        slug, pairs = samples.task.slug, samples.classified.pairs
        encoder, keys = session.fusion_encoder, samples.split.keys
        firsts = [keys[row] for row in pairs.first_D.tolist()]
        about = _of("pairs", samples.task.content, samples.name, firsts)
        about |= {"transform": encoder.transform.facts()}
        texts = text_batches([pair[1] for pair in pairs.names], session.evaluator.batch_size)
        work = PairBatches(ImageBatches.of(session, samples, pairs.first_D, about), texts)
        what = f"{session.checkpoint} on {slug} ({samples.name})"
        things = Things(_plain(session, work), len(pairs.names), what, "pairs", firsts)
        with session.timed("embed", task=slug, split=samples.name, pairs=things.count):
            return embedded(session, about, things).vectors

    return session.once(samples, fuse_it)


def texts_of(
    session: Session,
    texts: Sequence[Any],
    what: str,
    kind: str,
    samples: Sequence[str] = (),
    *,
    caches: bool = True,
) -> Things:
    """Texts to embed by the checkpoint of a session."""
    work = text_batches(texts, session.evaluator.batch_size)
    return Things(_plain(session, work), len(texts), what, kind, samples, caches=caches)


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


def _plain(
    session: Session, compute: Compute[Encoder, Vectors]
) -> Callable[[range], Iterator[Batch]]:
    """The batches of items of which none is left out."""
    return lambda numbers: ((part, {}) for part in session.results(compute, numbers))


def embedded(session: Session, about: Mapping[str, Any], things: Things) -> Embedded:
    """Things embedded by the checkpoint of a session; `about` identifies them among all.

    They are read from the cache if it has them, else from shards or computed, and stored there. A
    shard stores its share, and returns nothing. Raises Diverged for non-finite embeddings.
    """
    evaluator = session.evaluator
    of_model = {"checkpoint": session.manifest.content, **about}
    if evaluator.embeds_share:
        _keep_share(session, of_model, about, things)
        return Embedded(_none(session), {})
    found = _stored(session, about, things)
    if found is not None:
        return found
    if evaluator.shards is None:
        found = _computed(session, things)
    else:
        found = _joined(session, of_model, things)
    if evaluator.cache is not None and things.caches and not evaluator.searches_share:
        facts = {"flaws": [[row, why] for row, why in found.flaws.items()]} if found.flaws else {}
        evaluator.cache.put(
            key_in_cache(session, about), Cached(found.vectors[:], things.samples, facts)
        )
    return found


def _computed(session: Session, things: Things) -> Embedded:
    numbers = range(-(-things.count // session.evaluator.batch_size))
    flaws: dict[int, str] = {}
    parts = []
    for part, bad in _batches(session, things, numbers):
        parts.append(part)
        flaws |= bad
    found = _without(np.concatenate(parts) if parts else _none(session), flaws)
    require_finite(found[:], f"{things.what}, {things.kind}")
    return Embedded(found, flaws)


def _without(vectors_ND: AnyVectors, flaws: Iterable[int]) -> AnyVectors:
    kept = np.setdiff1d(np.arange(len(vectors_ND)), list(flaws))
    return vectors_ND if len(kept) == len(vectors_ND) else vectors_ND[kept]


def _stored(session: Session, about: Mapping[str, Any], things: Things) -> Embedded | None:
    """What the cache has; None if it has nothing of this, or there is none."""
    cache = session.evaluator.cache
    if cache is None or not things.caches:
        return None
    found = cache.get(key_in_cache(session, about))
    # Labelled images that cannot be decoded are left out there; here they may be refused.
    if found is None or (found.facts and not things.skips):
        return None
    return Embedded(found.embeddings, {int(row): why for row, why in found.facts.get("flaws", ())})


def key_in_cache(session: Session, about: Mapping[str, Any]) -> Key:
    """The key of embeddings by the checkpoint of a session."""
    return {"checkpoint": session.manifest.content, **session.evaluator.numeric(), **about}


def _keep_share(
    session: Session, of_model: Mapping[str, Any], about: Mapping[str, Any], things: Things
) -> None:
    """Store what a shard has of the things, from the cache or computed."""
    shards, size = session.evaluator.shards, session.evaluator.batch_size
    assert shards is not None
    count = -(-things.count // size)

    def results(numbers: range) -> Iterator[tuple[Vectors, dict[int, str]]]:
        stored = _stored(session, about, things)
        if stored is None:
            for part, bad in _batches(session, things, numbers):
                require_finite(part, f"{things.what}, {things.kind}")
                yield part, bad
            return
        whole = np.zeros((things.count, session.encoder.width), np.float32)
        whole[np.setdiff1d(np.arange(things.count), list(stored.flaws))] = stored.vectors[:]
        for number in numbers:
            rows = range(number * size, min((number + 1) * size, things.count))
            bad = {row: stored.flaws[row] for row in rows if row in stored.flaws}
            yield whole[rows.start : rows.stop], bad

    if things.skips:
        shards.keep_arrays(
            of_model,
            count,
            lambda numbers: (
                (part, np.array([*bad], np.int64), np.array([*bad.values()], np.str_))
                for part, bad in results(numbers)
            ),
        )
        return
    share = shards.share(count)
    rows = max(0, min(share.stop * size, things.count) - share.start * size)
    shape = rows, session.encoder.width
    vectors = (part for part, _ in results(share))
    shards.keep_share(
        of_model, ".npy", lambda file: write_vectors(file, vectors, shape, np.float32)
    )


def _joined(session: Session, of_model: Mapping[str, Any], things: Things) -> Embedded:
    """What all shards have stored, mapped if nothing is left out."""
    shards = session.evaluator.shards
    assert shards is not None
    if not things.skips:
        files = shards.files(of_model)
        mapped = [(VectorFile(file, np.float32).mapped(), None) for file in files]
        return Embedded(Gathered(mapped), {})
    parts, flaws = [_none(session)], dict[int, str]()
    for part, rows, whys in shards.arrays(
        of_model, -(-things.count // session.evaluator.batch_size)
    ):
        parts.append(part)
        flaws |= dict(zip(rows.tolist(), whys.tolist(), strict=True))
    return Embedded(_without(np.concatenate(parts), flaws), flaws)


def _batches(session: Session, things: Things, numbers: range) -> Iterator[Batch]:
    """The batches with these numbers, with progress."""
    size = session.evaluator.batch_size
    count = max(min(numbers.stop * size, things.count) - numbers.start * size, 0)
    with progress(f"{things.what}: {things.kind}", count, things.kind) as bar:
        for part, bad in things.batches(numbers):
            yield part, bad
            bar.advance(len(part))


def _none(session: Session) -> Vectors:
    return np.empty((0, session.encoder.width), dtype=np.float32)


@dataclass(frozen=True)
class ImageBatches:
    """Embeds batches of images: (B, D) float32 each."""

    images: EvalImages
    workers: int

    @classmethod
    def of(
        cls, session: Session, samples: Samples, rows: np.ndarray, about: Mapping[str, Any]
    ) -> ImageBatches:
        """The images of samples at these rows, which `about` identifies."""
        evaluator, view = session.evaluator, session.encoder.transform
        images = EvalImages(samples.split, rows, view, evaluator.batch_size)
        images.kept = evaluator.kept(about)
        return cls(images, evaluator.worker_count)

    def __call__(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Vectors]:
        """Raises BadInput if an image cannot be read or decoded."""
        yield from image_vectors(encoder, self.read(encoder, numbers))

    def read(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Tensor]:
        """The batches of images, (B, H, W, 3) bytes each, pinned for a GPU."""
        pins = encoder.device.type == "cuda"
        return read_views(self.images, self.workers, numbers, pins=pins)


@dataclass(frozen=True)
class TextBatches:
    """Embeds batches of texts, by their numbers: (B, D) float32 each."""

    batches: Sequence[list[str]]

    def __call__(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Vectors]:
        yield from text_vectors(encoder, (self.batches[number] for number in numbers))


@dataclass(frozen=True)
class PairBatches:
    """Fuses batches of images with batches of texts: (B, C) float32 each."""

    images: ImageBatches
    texts: TextBatches

    def __call__(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Vectors]:
        """Raises BadInput if an image cannot be read or decoded."""
        assert encoder.family == "fusion"
        texts = (self.texts.batches[number] for number in numbers)
        images = self.images.read(encoder, numbers)
        yield from pair_vectors(encoder, zip(images, texts, strict=True))


def text_batches(texts: Sequence[str], size: int) -> TextBatches:
    """Batches of `size` texts in their order; the last may have fewer."""
    starts = range(0, len(texts), size)
    return TextBatches([list(texts[start : start + size]) for start in starts])
