"""Galleries of images and texts, with the pairs that match; identical content is one entry.

Shapes: N samples, C captions, I distinct images, T distinct texts, P pairs, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vlcpctl.evaluation.search.index import AnyVectors, Gathered, Ids


@dataclass(frozen=True)
class Layout:
    """The distinct images and texts of a split, and where its samples and captions find theirs.

    Identical content is embedded once, even where a gallery keeps its copies separate.
    """

    image_ids: list[str]  # sha256
    texts: list[str]
    first_row_I: Ids  # the first sample with the image
    image_of_N: Ids
    sample_of_C: Ids
    text_of_C: Ids


def lay_out(sha256s: Sequence[str], captions: Iterable[Sequence[str]]) -> Layout:
    """The layout of samples, given their images' hashes and their captions.

    >>> layout = lay_out(["a", "b", "a"], [["cat"], ["dog", "cat"], ["tom"]])
    >>> layout.texts, layout.image_of_N.tolist(), layout.text_of_C.tolist()
    (['cat', 'dog', 'tom'], [0, 1, 0], [0, 1, 0, 2])
    """
    images: dict[str, int] = {}
    texts: dict[str, int] = {}
    first_rows: list[int] = []
    of_caption: list[tuple[int, int]] = []
    for sample, (sha256, sentences) in enumerate(zip(sha256s, captions, strict=True)):
        if images.setdefault(sha256, len(images)) == len(first_rows):
            first_rows.append(sample)
        of_caption += [(sample, texts.setdefault(text, len(texts))) for text in sentences]
    samples, rows = np.array(of_caption, dtype=np.int64).reshape(-1, 2).T
    image_of = np.array([images[sha256] for sha256 in sha256s], dtype=np.int64)
    return Layout(list(images), list(texts), _ids(first_rows), image_of, samples, rows)


@dataclass(frozen=True)
class Embeddings:
    """A split embedded by one model: unit-length embeddings of its distinct images and texts."""

    layout: Layout
    image_ID: AnyVectors
    text_TD: AnyVectors


@dataclass(frozen=True)
class RightAnswers:
    """For each query the gallery rows that are right answers: `ids[starts[q]:starts[q + 1]]`."""

    starts: Ids
    ids: Ids

    @cached_property
    def counts(self) -> Ids:
        """(Q,) number of right answers per query."""
        return np.diff(self.starts)

    @cached_property
    def owners(self) -> Ids:
        """(A,) the query of each right answer."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def at(self, rows: Ids) -> RightAnswers:
        """The right answers of these queries."""
        starts = np.concatenate([[0], np.cumsum(self.counts[rows])])
        return RightAnswers(starts, self.ids[self.places(rows)])

    def places(self, rows: Ids) -> Ids:
        """The places in `ids` of the right answers of these queries."""
        counts = self.counts[rows]
        shift = np.repeat(self.starts[rows] - np.cumsum(counts) + counts, counts)
        places: Ids = np.arange(counts.sum()) + shift
        return places


@dataclass(frozen=True)
class Gallery:
    """Image and text entries, and the (image, text) rows of those that match, each pair once."""

    image_ID: AnyVectors
    text_TD: AnyVectors
    pairs_P2: Ids

    def texts_of_images(self) -> RightAnswers:
        """The right answers of text retrieval: for each image, the rows of its texts."""
        return _right(self.pairs_P2[:, 0], self.pairs_P2[:, 1], len(self.image_ID))

    def images_of_texts(self) -> RightAnswers:
        """The right answers of image retrieval: for each text, the rows of its images."""
        return _right(self.pairs_P2[:, 1], self.pairs_P2[:, 0], len(self.text_TD))


@dataclass(frozen=True)
class GrowingGallery:
    """The gallery of several parts; the gallery of the first of them is the start of it.

    `image_ends` and `text_ends` (N,) are the numbers of entries of the first 1, 2, ... N parts, and
    `part_P` is the part, from 0, with which each pair comes: a pair may be newer than both entries.
    """

    whole: Gallery
    image_ends: Ids
    text_ends: Ids
    part_P: Ids

    def first(self, parts: int) -> Gallery:
        """The gallery of the first parts."""
        return Gallery(
            self.whole.image_ID[: self.image_ends[parts - 1]],
            self.whole.text_TD[: self.text_ends[parts - 1]],
            self.whole.pairs_P2[self.part_P < parts],
        )


def merge_galleries(parts: Sequence[Embeddings]) -> Gallery:
    """One gallery of all parts, in which identical images, and identical texts, are one entry."""
    return merge_growing(parts).whole


def merge_growing(parts: Sequence[Embeddings]) -> GrowingGallery:
    """The gallery of `merge_galleries`, and where that of the first parts ends."""
    image_ids: dict[str, int] = {}
    texts: dict[str, int] = {}
    images, sentences, pairs, ends = [], [], [], []
    for part in parts:
        layout = part.layout
        image_rows, fresh_images = _enter(image_ids, layout.image_ids)
        text_rows, fresh_texts = _enter(texts, layout.texts)
        images.append((part.image_ID, fresh_images))
        sentences.append((part.text_TD, fresh_texts))
        of_caption = image_rows[layout.image_of_N[layout.sample_of_C]]
        pairs.append(np.stack([of_caption, text_rows[layout.text_of_C]], axis=1))
        ends.append((len(image_ids), len(texts)))
    unique, first = np.unique(np.concatenate(pairs), axis=0, return_index=True)
    part_C = np.repeat(np.arange(len(parts)), [len(one) for one in pairs])
    gallery = Gallery(Gathered(images), Gathered(sentences), unique)
    image_ends, text_ends = _ids(ends).T
    return GrowingGallery(gallery, image_ends, text_ends, part_C[first])


def stack_galleries(parts: Sequence[Embeddings]) -> Gallery:
    """One gallery of all parts, an image per sample; only a sample's own captions are right."""
    return stack_growing(parts).whole


def stack_growing(parts: Sequence[Embeddings]) -> GrowingGallery:
    """The gallery of `stack_galleries`, and where that of the first parts ends."""
    images = Gathered([(part.image_ID, part.layout.image_of_N) for part in parts])
    texts = Gathered([(part.text_TD, part.layout.text_of_C) for part in parts])
    image_ends = np.cumsum([len(part.layout.image_of_N) for part in parts])
    sizes = [len(part.layout.text_of_C) for part in parts]
    before = [0, *image_ends[:-1].tolist()]
    shifted = [part.layout.sample_of_C + start for part, start in zip(parts, before, strict=True)]
    pairs = np.stack([np.concatenate(shifted), np.arange(len(texts))], axis=1)
    part_P = np.repeat(np.arange(len(parts)), sizes)
    return GrowingGallery(Gallery(images, texts, pairs), image_ends, np.cumsum(sizes), part_P)


GATHER = {"unite": merge_galleries, "separate": stack_galleries}
GATHER_GROWING = {"unite": merge_growing, "separate": stack_growing}


@dataclass(frozen=True)
class EntrySources:
    """Where the entries of a gallery come from; of identical content, the first sample.

    Rows are (part, sample) for images, and (part, sample, caption) for texts.
    """

    image_I2: Ids
    text_T3: Ids


def merged_sources(layouts: Sequence[Layout]) -> EntrySources:
    """The sources of the entries of `merge_galleries`."""
    image_ids: dict[str, int] = {}
    texts: dict[str, int] = {}
    images, sentences = [], []
    for number, layout in enumerate(layouts):
        _, fresh_images = _enter(image_ids, layout.image_ids)
        _, fresh_texts = _enter(texts, layout.texts)
        images.append(_in_part(number, layout.first_row_I[fresh_images]))
        first_C = np.unique(layout.text_of_C, return_index=True)[1]
        sentences.append(_in_part(number, *_captions(layout, first_C[fresh_texts])))
    return EntrySources(np.concatenate(images), np.concatenate(sentences))


def stacked_sources(layouts: Sequence[Layout]) -> EntrySources:
    """The sources of the entries of `stack_galleries`."""
    images, sentences = [], []
    for number, layout in enumerate(layouts):
        images.append(_in_part(number, np.arange(len(layout.image_of_N))))
        every_C = np.arange(len(layout.text_of_C))
        sentences.append(_in_part(number, *_captions(layout, every_C)))
    return EntrySources(np.concatenate(images), np.concatenate(sentences))


SOURCES = {"unite": merged_sources, "separate": stacked_sources}


def _captions(layout: Layout, numbers: Ids) -> tuple[Ids, Ids]:
    """The sample of each caption, given its number in the split, and its index in that sample."""
    samples = layout.sample_of_C[numbers]
    return samples, numbers - np.searchsorted(layout.sample_of_C, samples)


def _in_part(number: int, *columns: Ids) -> Ids:
    return np.stack([np.full(len(columns[0]), number, dtype=np.int64), *columns], axis=1)


def _enter(known: dict[str, int], names: Sequence[str]) -> tuple[Ids, Ids]:
    """The entry of each name, and which of the names are new entries."""
    before = len(known)
    rows = _ids([known.setdefault(name, len(known)) for name in names])
    return rows, np.flatnonzero(rows >= before)


def _right(queries: Ids, answers: Ids, count: int) -> RightAnswers:
    order = np.lexsort((answers, queries))
    starts = np.searchsorted(queries[order], np.arange(count + 1))
    return RightAnswers(_ids(starts), answers[order])


def _ids(values: Any) -> Ids:
    return np.asarray(values, dtype=np.int64)
