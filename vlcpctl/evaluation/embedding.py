"""Embed the distinct images and texts of samples, or their distinct pairs, in batches.

The batches are shared by the processes of a pool, and by shards; a batch is never divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from vlcpctl.core.console import progress
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.loading.eval_batches import EvalImages, read_views
from vlcpctl.data.precomputed.store import VectorFile, write_vectors
from vlcpctl.evaluation.embedding_cache import Key
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.samples import Samples
from vlcpctl.evaluation.search.galleries import Embeddings
from vlcpctl.evaluation.search.vectors import AnyVectors, Gathered, Vectors
from vlcpctl.files.ids import content_id
from vlcpctl.files.parts import Parts, Result
from vlcpctl.models.embed import image_vectors, pair_vectors, require_finite, text_vectors
from vlcpctl.models.encoders import Encoder

Flaws = Mapping[int, str]  # why things have no embedding, by their number among all
Batch = tuple[Vectors, Flaws]  # (B, D) of those that have one
Read = Callable[[Encoder, Sequence[int]], Iterator[Tensor]]  # batches (B, H, W, 3) of bytes


class Embedded(NamedTuple):
    """Embeddings (N, D) float32, and why further things have none."""

    vectors: AnyVectors
    flaws: Flaws


@dataclass(frozen=True)
class Things:
    """`count` things of one `kind` to embed: `batches` computes those with some numbers.

    `about` identifies them in the cache, where the checkpoint and the arithmetic come to it; `what`
    names the model and the data in messages; `samples` are the keys of what the things are of. With
    `skips`, those that cannot be read are left out; without `caches`, the cache is not asked.
    """

    about: Mapping[str, Any]
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
        slug, keys = samples.task.slug, samples.split.keys
        images, texts = samples.captioned.images, samples.captioned.texts
        data, split, own = samples.task.content, samples.name, keys[: len(samples)]
        firsts = [keys[row] for row in images.first_D.tolist()]
        about = images_of(data, split, firsts, session.encoder.transform)
        work = partial(_images, _read(session, samples, images.first_D, about))
        batches = partial(session.results, work)
        what, of_texts = f"{session.checkpoint} on {slug}", _of("texts", data, split, own)
        each_image = Things(about, batches, len(images.names), what, "images", firsts)
        each_text = texts_of(session, texts.names, of_texts, what, "texts", own)
        with session.timed("embed", task=slug, images=each_image.count, texts=each_text.count):
            found = (embedded(session, one).vectors for one in (each_image, each_text))
            return Embeddings(*found)

    return session.once(samples, embed_it)


def fuse(session: Session, samples: Samples) -> AnyVectors:
    """The fused features (P, D) of the distinct pairs of samples, computed once; see `embed`."""

    def fuse_it() -> AnyVectors:
        slug, pairs = samples.task.slug, samples.classified.pairs
        keys, size = samples.split.keys, session.evaluator.batch_size
        firsts = [keys[row] for row in pairs.first_D.tolist()]
        about = _of("pairs", samples.task.content, samples.name, firsts)
        about |= {"transform": session.encoder.transform.facts()}
        texts = [pair[1] for pair in pairs.names]
        work = partial(_pairs, _read(session, samples, pairs.first_D, about), texts, size)
        batches = partial(session.results, work)
        what = f"{session.checkpoint} on {slug} ({samples.name})"
        things = Things(about, batches, len(texts), what, "pairs", firsts)
        with session.timed("embed", task=slug, split=samples.name, pairs=things.count):
            return embedded(session, things).vectors

    return session.once(samples, fuse_it)


def texts_of(
    session: Session,
    texts: Sequence[str],
    about: Mapping[str, Any],
    what: str,
    kind: str,
    samples: Sequence[str] = (),
) -> Things:
    """Texts to embed by the checkpoint of a session; the cache is not asked for those of no data.

    See `Things`.
    """
    batches = partial(session.results, partial(_texts, texts, session.evaluator.batch_size))
    return Things(about, batches, len(texts), what, kind, samples, caches=bool(samples))


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


def _read(session: Session, samples: Samples, rows: np.ndarray, about: Mapping[str, Any]) -> Read:
    """What reads batches of the images at these rows, which `about` identifies."""
    evaluator = session.evaluator
    images = EvalImages(samples.split, rows, session.encoder.transform, evaluator.batch_size)
    images.kept = evaluator.kept(about)
    return partial(_views, images, evaluator.worker_count)


# What a pool computes: pickled functions of a model and the numbers of batches.


def _views(
    images: EvalImages, workers: int, encoder: Encoder, numbers: Sequence[int]
) -> Iterator[Tensor]:
    return read_views(images, workers, numbers, pins=encoder.device.type == "cuda")


def _images(read: Read, encoder: Encoder, numbers: Sequence[int]) -> Iterator[Batch]:
    yield from ((part, {}) for part in image_vectors(encoder, read(encoder, numbers)))


def _texts(
    texts: Sequence[str], size: int, encoder: Encoder, numbers: Sequence[int]
) -> Iterator[Batch]:
    batches = (list(texts[number * size :][:size]) for number in numbers)
    yield from ((part, {}) for part in text_vectors(encoder, batches))


def _pairs(
    read: Read, texts: Sequence[str], size: int, encoder: Encoder, numbers: Sequence[int]
) -> Iterator[Batch]:
    assert encoder.family == "fusion"  # the plan has refused any other
    batches = (list(texts[number * size :][:size]) for number in numbers)
    both = zip(read(encoder, numbers), batches, strict=True)
    yield from ((part, {}) for part in pair_vectors(encoder, both))


def embedded(session: Session, things: Things) -> Embedded:
    """Things embedded by the checkpoint of a session.

    They are read from the cache if it has them, else from shards or computed, and stored there. A
    shard stores its share, and returns nothing. Raises Diverged for non-finite embeddings.
    """
    evaluator, shards = session.evaluator, session.evaluator.shards
    cache = evaluator.cache if things.caches else None
    stored = None if cache is None else cache.get(key_in_cache(session, things.about))
    found = None
    # Labelled images that cannot be decoded are left out there; here they may be refused.
    if stored is not None and (things.skips or not stored[1]):
        vectors, facts = stored
        found = Embedded(vectors, {int(row): why for row, why in facts.get("flaws", ())})
    of_model = {"checkpoint": session.manifest.content, **things.about}
    if shards is not None and evaluator.embeds_share:
        _keep_share(session, things, shards, of_model, found)
        return Embedded(_none(session), {})
    if found is not None:
        return found
    if shards is None:
        found = _computed(session, things)
    else:
        found = _joined(session, things, shards, of_model)
    if cache is not None and (shards is None or shards.index is None):
        facts = {"flaws": [[row, why] for row, why in found.flaws.items()]} if found.flaws else {}
        cache.put(key_in_cache(session, things.about), found.vectors[:], things.samples, facts)
    return found


def _computed(session: Session, things: Things) -> Embedded:
    parts, flaws = [], dict[int, str]()
    for part, bad in _batches(session, things, range(_count(session, things))):
        parts.append(part)
        flaws |= bad
    found = np.concatenate(parts) if parts else _none(session)
    require_finite(found, f"{things.what}, {things.kind}")
    return Embedded(found, flaws)


def key_in_cache(session: Session, about: Mapping[str, Any]) -> Key:
    """The key of embeddings by the checkpoint of a session."""
    return {"checkpoint": session.manifest.content, **session.evaluator.numeric(), **about}


def _keep_share(
    session: Session, things: Things, shards: Parts, about: Key, stored: Embedded | None
) -> None:
    """Store what a shard has of the things, from the cache or computed."""
    size, count = session.evaluator.batch_size, _count(session, things)

    def results(numbers: range) -> Iterator[Batch]:
        if stored is None:
            for part, bad in _batches(session, things, numbers):
                require_finite(part, f"{things.what}, {things.kind}")
                yield part, bad
            return
        kept = np.setdiff1d(np.arange(things.count), list(stored.flaws))
        for number in numbers:
            rows = range(number * size, min((number + 1) * size, things.count))
            own = slice(*np.searchsorted(kept, [rows.start, rows.stop]))
            bad = {row: stored.flaws[row] for row in rows if row in stored.flaws}
            yield stored.vectors[own], bad

    if things.skips:

        def arrays(numbers: range) -> Iterator[Result]:
            for part, bad in results(numbers):
                yield part, np.array([*bad], np.int64), np.array([*bad.values()], np.str_)

        shards.keep_arrays(about, count, arrays)
        return
    share = shards.share(count)
    rows = max(0, min(share.stop * size, things.count) - share.start * size)
    shape = rows, session.encoder.width
    vectors = (part for part, _ in results(share))
    shards.keep_share(about, ".npy", lambda file: write_vectors(file, vectors, shape, np.float32))


def _joined(session: Session, things: Things, shards: Parts, about: Key) -> Embedded:
    """What all shards have stored, mapped if nothing is left out."""
    if not things.skips:
        files = shards.files(about)
        mapped = [(VectorFile(file, np.float32).mapped(), None) for file in files]
        return Embedded(Gathered(mapped), {})
    parts, flaws = [_none(session)], dict[int, str]()
    for part, rows, whys in shards.arrays(about, _count(session, things)):
        parts.append(part)
        flaws |= dict(zip(rows.tolist(), whys.tolist(), strict=True))
    return Embedded(np.concatenate(parts), flaws)


def _batches(session: Session, things: Things, numbers: range) -> Iterator[Batch]:
    """The batches with these numbers, with progress."""
    size = session.evaluator.batch_size
    count = max(min(numbers.stop * size, things.count) - numbers.start * size, 0)
    with progress(f"{things.what}: {things.kind}", count, things.kind) as bar:
        for part, bad in things.batches(numbers):
            yield part, bad
            bar.advance(len(part) + len(bad))


def _count(session: Session, things: Things) -> int:
    """The number of batches."""
    return -(-things.count // session.evaluator.batch_size)


def _none(session: Session) -> Vectors:
    return np.empty((0, session.encoder.width), dtype=np.float32)
