"""Galleries of images and texts, or of pairs with a class; identical content is one entry.

A gallery is made of parts, and that of its first parts is the start of it. What it contains is
known before anything is embedded, and is the same for every model.
Shapes: N samples, C captions, E entries, P pairs, M parts, Q queries, G gallery rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from vlcpctl.evaluation.search.vectors import AnyVectors, Gathered, Ids, Mask

UNITE, SEPARATE = DUPLICATES = ("unite", "separate")
COUNTS = ("n_distractor_images", "n_distractor_texts", "n_left_out")  # in rows


@dataclass(frozen=True)
class Distinct:
    """What differs among N things, in the order of first appearance: names, and the first of each.

    Identical things are embedded once, even where a gallery keeps them separate.
    """

    names: list[Any]
    first_D: Ids
    of_N: Ids

    @staticmethod
    def of(things: Iterable[Hashable]) -> Distinct:
        """The distinct ones of some things.

        >>> found = Distinct.of(["cat", "dog", "cat"])
        >>> found.names, found.first_D.tolist(), found.of_N.tolist()
        (['cat', 'dog'], [0, 1], [0, 1, 0])
        """
        number_of: dict[Hashable, int] = {}
        of_N = ids([number_of.setdefault(one, len(number_of)) for one in things])
        return Distinct(list(number_of), np.unique(of_N, return_index=True)[1], of_N)


@dataclass(frozen=True)
class Captioned:
    """Images with captions: the images of N samples, the texts of C captions, each one's sample."""

    images: Distinct
    texts: Distinct
    sample_C: Ids

    @staticmethod
    def of(sha256s: Iterable[str], captions: Iterable[Sequence[str]]) -> Captioned:
        """Samples by their images' hashes and their captions."""
        pairs = [(row, text) for row, own in enumerate(captions) for text in own]
        texts = Distinct.of(text for _, text in pairs)
        return Captioned(Distinct.of(sha256s), texts, ids([row for row, _ in pairs]))

    def places(self, caption_N: Ids) -> tuple[Ids, Ids]:
        """The samples of some captions, and the index of each among those of its sample."""
        sample_N = self.sample_C[caption_N]
        return sample_N, caption_N - np.searchsorted(self.sample_C, sample_N)


class Embeddings(NamedTuple):
    """Unit embeddings of the distinct images (I, D) and texts (T, D) of a part, by one model."""

    image_ID: AnyVectors
    text_TD: AnyVectors


@final
class _Entries:
    """The entries of one kind, part by part: which things of a part they are, where parts end."""

    def __init__(self, duplicates: str) -> None:
        self.unites = duplicates == UNITE
        self.known: dict[Hashable, int] = {}
        self.things: list[Ids] = []
        self.ends: list[int] = []

    def enter(self, found: Distinct) -> Ids:
        """(N,) the entry of each thing of the next part."""
        before = self.ends[-1] if self.ends else 0
        if self.unites:
            of_D = ids([self.known.setdefault(one, len(self.known)) for one in found.names])
            things = found.first_D[of_D >= before]
            entry_N = of_D[found.of_N]
        else:
            things = np.arange(len(found.of_N))
            entry_N = before + things
        self.things.append(things)
        self.ends.append(before + len(things))
        return entry_N


@dataclass(frozen=True)
class Search:
    """Queries in a gallery, with their right answers: (query, row) pairs in order, each once.

    Each query has one. A query whose right answers grow with the gallery is there once for each
    set of them: it is asked in the first parts from `since_Q` to before `until_Q`, from 0.
    """

    query_QD: AnyVectors
    gallery_GD: AnyVectors
    right_A2: Ids
    ends_M: Ids
    since_Q: Ids
    until_Q: Ids

    @staticmethod
    def of(query_QD: AnyVectors, gallery_GD: AnyVectors, right_A2: Ids) -> Search:
        """A search in one gallery."""
        count, ends_M = len(query_QD), ids([len(gallery_GD)])
        return Search(query_QD, gallery_GD, right_A2, ends_M, ids([0] * count), ids([1] * count))

    def __len__(self) -> int:
        return len(self.query_QD)

    def asked(self, parts: int) -> Ids:
        """The queries that are asked in the gallery of the first parts."""
        return np.flatnonzero((self.since_Q < parts) & (self.until_Q >= parts))

    def of_rows(self, rows: Ids) -> Search:
        """The search for some of the queries, in order."""
        if len(rows) == len(self):
            return self
        is_own = np.isin(self.right_A2[:, 0], rows)
        owner, answer = self.right_A2[is_own].T
        return replace(
            self,
            query_QD=Gathered([(self.query_QD, rows)]),
            right_A2=np.stack([np.searchsorted(rows, owner), answer], axis=1),
            since_Q=self.since_Q[rows],
            until_Q=self.until_Q[rows],
        )


@dataclass(frozen=True)
class Gallery:
    """Image and text entries of M parts, and which of them match, each pair once.

    `sample_rows` and `caption_rows` say which samples, and which captions, of each part are
    entries: of identical content the first. Behind the M parts, of which `ends_M2` are the numbers
    of images and texts after each, there may be parts of distractors. A pair may come with a later
    part than both its entries.
    """

    parts: Sequence[Captioned]
    sample_rows: list[Ids]
    caption_rows: list[Ids]
    pairs_P2: Ids
    part_P: Ids
    ends_M2: Ids
    left_out: int = 0  # pairs that would be distractors, but share something with the data

    def vectors(self, embedded: Sequence[Embeddings]) -> Embeddings:
        """The embeddings of the entries of the first parts, given those of these parts."""
        own = zip(embedded, self.parts, self.sample_rows, self.caption_rows, strict=False)
        images, texts = [], []
        for vectors, part, sample_rows, caption_rows in own:
            images.append((vectors.image_ID, part.images.of_N[sample_rows]))
            texts.append((vectors.text_TD, part.texts.of_N[caption_rows]))
        return Embeddings(Gathered(images), Gathered(texts))

    def searches(self, queries: Embeddings, gallery: Embeddings) -> dict[str, Search]:
        """Every image as a query for texts, and the other way round.

        `queries` are the embeddings of all entries but distractors, `gallery` those of all, perhaps
        by another model.
        """
        ends_M2 = self.ends_M2.copy()
        ends_M2[-1] = len(gallery.image_ID), len(gallery.text_TD)
        return both_ways(queries, gallery, self.pairs_P2, self.part_P, ends_M2)


def both_ways(
    queries: Embeddings, gallery: Embeddings, pairs_P2: Ids, part_P: Ids, ends_M2: Ids
) -> dict[str, Search]:
    """Every image as a query for texts, and the other way round, in a gallery that may grow.

    `pairs_P2` are the rows of images and texts that match, in order and each once, `part_P` the
    part with which each comes, and `ends_M2` the numbers of images and texts after each part.
    """
    swapped = np.lexsort(pairs_P2.T)
    i2t = Search.of(queries.image_ID, gallery.text_TD, pairs_P2)
    t2i = Search.of(queries.text_TD, gallery.image_ID, pairs_P2[swapped, ::-1])
    return {
        "i2t": _growing(i2t, part_P, ends_M2[:, 1]),
        "t2i": _growing(t2i, part_P[swapped], ends_M2[:, 0]),
    }


def gather(parts: Sequence[Captioned], duplicates: str) -> Gallery:
    """One gallery of all parts.

    With `duplicates` "separate", every sample is an image entry and every caption a text entry, and
    only a sample's own captions are right answers to its image.
    """
    images, texts = _Entries(duplicates), _Entries(duplicates)
    pairs = []
    for part in parts:
        image_N, text_C = images.enter(part.images), texts.enter(part.texts)
        pairs.append(np.stack([image_N[part.sample_C], text_C], axis=1))
    unique_P2, first_P = np.unique(np.concatenate(pairs), axis=0, return_index=True)
    part_C = np.repeat(np.arange(len(parts)), [len(one) for one in pairs])
    ends_M2 = np.stack([ids(images.ends), ids(texts.ends)], axis=1)
    return Gallery(parts, images.things, texts.things, unique_P2, part_C[first_P], ends_M2)


def with_distractors(gallery: Gallery, others: Sequence[Captioned], duplicates: str) -> Gallery:
    """The gallery, which does not grow then, with the entries of other data behind its own.

    A pair whose image, or one of whose captions, the evaluated data has is left out: its captions
    are right answers to that image, and its image is one to that caption, but the evaluated data
    does not say so. What it shares with further pairs is left out of those, too.

    As in galleries, identical content is one entry, or with `duplicates` "separate" several.
    """
    images, texts, left_out = _shared_with(gallery.parts, others)
    more = gather(others, duplicates)
    sample_rows, caption_rows = list(gallery.sample_rows), list(gallery.caption_rows)
    for part, samples, captions in zip(others, more.sample_rows, more.caption_rows, strict=True):
        is_image = _are_not_in(images, part.images.names)[part.images.of_N[samples]]
        is_text = _are_not_in(texts, part.texts.names)[part.texts.of_N[captions]]
        sample_rows.append(samples[is_image])
        caption_rows.append(captions[is_text])
    return replace(
        gallery,
        parts=[*gallery.parts, *others],
        sample_rows=sample_rows,
        caption_rows=caption_rows,
        part_P=0 * gallery.part_P,
        ends_M2=gallery.ends_M2[-1:],
        left_out=left_out,
    )


def _shared_with(
    own: Sequence[Captioned], others: Sequence[Captioned]
) -> tuple[set[Hashable], set[Hashable], int]:
    """The images and the texts of the samples that share one with own data, and their number."""
    own_images = {one for part in own for one in part.images.names}
    own_texts = {one for part in own for one in part.texts.names}
    images, texts, count = set[Hashable](), set[Hashable](), 0
    for part in others:
        shares_N = ~_are_not_in(own_images, part.images.names)[part.images.of_N]
        is_own_C = ~_are_not_in(own_texts, part.texts.names)[part.texts.of_N]
        shares_N[part.sample_C[is_own_C]] = True
        images |= {part.images.names[row] for row in part.images.of_N[shares_N].tolist()}
        texts |= {
            part.texts.names[row] for row in part.texts.of_N[shares_N[part.sample_C]].tolist()
        }
        count += int(np.count_nonzero(shares_N))
    return images, texts, count


def _are_not_in(known: set[Hashable], names: Sequence[Hashable]) -> Mask:
    """(N,) bool: which names are not known."""
    return np.array([one not in known for one in names], dtype=np.bool_)


def _growing(whole: Search, part_A: Ids, ends_M: Ids) -> Search:
    """The search in the galleries of the first 1, 2, ... M parts.

    `part_A` is the part with which each right answer comes.
    """
    owner_A, parts = whole.right_A2[:, 0], len(ends_M)
    key_V = np.unique(owner_A * parts + part_A)  # a query, and when its right answers change
    query_V, since_V = key_V // parts, key_V % parts
    is_last = np.append(query_V[1:] != query_V[:-1], [True] * min(1, len(query_V)))
    until_V = np.where(is_last, parts, np.roll(since_V, -1))
    life = {"ends_M": ends_M, "since_Q": since_V, "until_Q": until_V}
    if len(query_V) == len(whole):
        return replace(whole, **life)
    first_Q = np.searchsorted(owner_A, np.arange(len(whole) + 1))
    counts_V = np.diff(first_Q)[query_V]
    version_A = np.repeat(np.arange(len(query_V)), counts_V)
    place_A = np.arange(len(version_A)) + np.repeat(
        first_Q[query_V] - np.cumsum(counts_V) + counts_V, counts_V
    )
    is_there = part_A[place_A] <= since_V[version_A]
    right_A2 = np.stack([version_A, whole.right_A2[place_A, 1]], axis=1)[is_there]
    query_VD = Gathered([(whole.query_QD, query_V)])
    return replace(whole, query_QD=query_VD, right_A2=right_A2, **life)


@dataclass(frozen=True)
class ClassSearch:
    """Queries of a class in a gallery, where others of the class are right answers.

    `itself_Q` is the gallery row of the query itself, or -1; it does not count as an answer.
    `query_ends` and `ends_M` (M,) are the numbers of rows of the first 1, 2, ... M parts.
    """

    query_QD: AnyVectors
    gallery_GD: AnyVectors
    class_Q: Ids
    class_G: Ids
    itself_Q: Ids
    query_ends: Ids
    ends_M: Ids

    @staticmethod
    def of(
        query_QD: AnyVectors, gallery_GD: AnyVectors, class_Q: Ids, class_G: Ids, itself_Q: Ids
    ) -> ClassSearch:
        """A search in a gallery of one part."""
        ends = ids([len(class_Q)]), ids([len(class_G)])
        return ClassSearch(query_QD, gallery_GD, class_Q, class_G, itself_Q, *ends)

    def of_rows(self, rows: range) -> ClassSearch:
        """The search for some of the queries."""
        own = slice(rows.start, rows.stop)
        return replace(
            self,
            query_QD=self.query_QD[own],
            class_Q=self.class_Q[own],
            itself_Q=self.itself_Q[own],
        )

    def right_counts(self, parts: int) -> tuple[Ids, Ids]:
        """(Q,) right answers per query in the gallery of the first parts, and the row of itself."""
        queries, rows = self.query_ends[parts - 1], self.ends_M[parts - 1]
        class_Q, itself_Q = self.class_Q[:queries], self.itself_Q[:queries]
        itself_Q = np.where(itself_Q < rows, itself_Q, -1)
        sizes = np.bincount(self.class_G[:rows], minlength=1 + int(class_Q.max(initial=0)))
        return sizes[class_Q] - (itself_Q >= 0), itself_Q


@dataclass(frozen=True)
class Classified:
    """N samples: the distinct pairs of an image and its first caption, and each one's class."""

    pairs: Distinct
    classes: Sequence[str]


Fused = Sequence[tuple[Classified, AnyVectors]]  # parts, with features (P, D) of their pairs


def gather_classes(queries: Fused, gallery: Fused, duplicates: str) -> ClassSearch:
    """One search of all parts; `queries` may be the gallery itself.

    Identical pairs of one class are one entry and one query, which is not its own answer. With
    `duplicates` "separate" every sample is; its copies are answers.
    """
    sides, numbers = [], dict[str, int]()
    for parts in (gallery,) if queries is gallery else (gallery, queries):
        entries, names = _Entries(duplicates), list[tuple[Hashable, str]]()
        vectors: list[tuple[AnyVectors, Ids | None]] = []
        for items, fused_PD in parts:
            pairs = [items.pairs.names[pair] for pair in items.pairs.of_N.tolist()]
            own = list(zip(pairs, items.classes, strict=True))
            entries.enter(Distinct.of(own))
            rows = entries.things[-1]
            vectors.append((fused_PD, items.pairs.of_N[rows]))
            names += [own[row] for row in rows.tolist()]
        class_N = ids([numbers.setdefault(one, len(numbers)) for _, one in names])
        sides.append((Gathered(vectors), class_N, names, entries))
    (gallery_GD, class_G, _, held), (query_QD, class_Q, names, asked) = sides[0], sides[-1]
    itself_Q = np.arange(len(class_Q))
    if asked is not held:
        itself_Q = ids([held.known.get(one, -1) for one in names])
    ends = ids(asked.ends), ids(held.ends)
    return ClassSearch(query_QD, gallery_GD, class_Q, class_G, itself_Q, *ends)


def ids(values: Any) -> Ids:
    """Whole numbers as an array."""
    return np.asarray(values, dtype=np.int64)
