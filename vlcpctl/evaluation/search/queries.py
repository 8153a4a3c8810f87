"""Queries with their right answers, in one gallery or one that grows part by part, and ranks.

Shapes: Q queries, A right answers of all queries, G gallery rows, N parts, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vlcpctl.evaluation.search.gallery import Gallery, GrowingGallery, RightAnswers
from vlcpctl.evaluation.search.index import (
    AnyVectors,
    Gathered,
    Ids,
    QueryAndGallery,
    Scores,
    exact_scores,
)


@dataclass(frozen=True)
class Parts:
    """The rows at which the parts of a gallery end (N,), and when each query is asked (Q,).

    It is asked from part `since` to before part `until`, from 0.
    """

    ends_N: Ids
    since_Q: Ids
    until_Q: Ids


@dataclass(frozen=True)
class Queries:
    """Queries with their gallery and their right answers; every query has at least one.

    Without `parts`, the gallery is one.
    """

    query_QD: AnyVectors
    gallery_GD: AnyVectors
    right: RightAnswers
    parts: Parts | None = None

    def __len__(self) -> int:
        return len(self.query_QD)

    @property
    def ends(self) -> Ids:
        """(N,) rows at which the parts of the gallery end."""
        return np.array([len(self.gallery_GD)]) if self.parts is None else self.parts.ends_N

    @property
    def sides(self) -> QueryAndGallery:
        """The embeddings alone."""
        return QueryAndGallery(self.query_QD, self.gallery_GD)

    @cached_property
    def right_scores(self) -> Scores:
        """(A,) exact scores of the right answers."""
        return exact_scores(self.sides, self.right.owners, self.right.ids)

    @cached_property
    def best_right(self) -> Scores:
        """(Q,) exact score of each query's best right answer."""
        best: Scores = np.maximum.reduceat(self.right_scores, self.right.starts[:-1])
        return best

    def asked(self, parts: int) -> Ids:
        """The rows of the queries that are asked in the gallery of the first parts."""
        if self.parts is None:
            return np.arange(len(self.query_QD))
        return np.flatnonzero((self.parts.since_Q < parts) & (self.parts.until_Q >= parts))

    def at(self, rows: Ids) -> Queries:
        """The queries in these rows."""
        life = self.parts
        parts = (
            None
            if life is None
            else replace(life, since_Q=life.since_Q[rows], until_Q=life.until_Q[rows])
        )
        query_QD = Gathered([(self.query_QD, rows)])
        return Queries(query_QD, self.gallery_GD, self.right.at(rows), parts)


@dataclass(frozen=True)
class Ranks:
    """(Q,) rank from 1 of each query's best right answer: at worst (it loses its ties) and at best.

    A rank beyond `top` is given as top + 1.
    """

    worst: Ids
    best: Ids


@dataclass(frozen=True)
class ExactRanks:
    """For each query (Q,), from 1: the rank of its best right answer, and that of its best wrong.

    `wrong` is the gallery row of the best wrong answer. Without any, both are -1.
    """

    rank: Ids
    wrong: Ids
    wrong_rank: Ids


def both_ways(gallery: Gallery, searched: Gallery | None = None) -> dict[str, Queries]:
    """Every image as a query for texts, and the other way round.

    `searched` is the gallery that is searched, if it is another one than the queries': with the
    same entries by another model, or with wrong answers behind them.
    """
    found = gallery if searched is None else searched
    return {
        "i2t": Queries(gallery.image_ID, found.text_TD, gallery.texts_of_images()),
        "t2i": Queries(gallery.text_TD, found.image_ID, gallery.images_of_texts()),
    }


def growing_ways(
    gallery: GrowingGallery, searched: GrowingGallery | None = None
) -> dict[str, Queries]:
    """The queries of both directions in a gallery that grows task by task.

    `searched` has the same entries by another model, if the gallery is by another.
    """
    ways = both_ways(gallery.whole, None if searched is None else searched.whole)
    image_P, text_P = gallery.whole.pairs_P2.T
    # In the order of right answers: by query, then by answer.
    of_images, of_texts = (
        gallery.part_P[np.lexsort(keys)] for keys in ((text_P, image_P), (image_P, text_P))
    )
    return {
        "i2t": _growing(ways["i2t"], of_images, gallery.text_ends),
        "t2i": _growing(ways["t2i"], of_texts, gallery.image_ends),
    }


def _growing(whole: Queries, part_A: Ids, ends_N: Ids) -> Queries:
    """The queries of the galleries of the first 1, 2, ... N parts.

    `part_A` is the part with which each right answer comes. A query whose right answers grow is
    there once for each set of them that it has in turn.
    """
    right, parts = whole.right, len(ends_N)
    key_V = np.unique(right.owners * parts + part_A)
    query_V, since_V = key_V // parts, key_V % parts
    is_last = np.append(query_V[1:] != query_V[:-1], [True] * min(1, len(query_V)))
    life = Parts(ends_N, since_V, np.where(is_last, parts, np.roll(since_V, -1)))
    if len(query_V) == len(right.counts):
        return Queries(whole.query_QD, whole.gallery_GD, right, life)
    every = right.at(query_V)
    is_there = part_A[right.places(query_V)] <= since_V[every.owners]
    counts = np.bincount(every.owners[is_there])
    own = RightAnswers(np.concatenate([[0], np.cumsum(counts)]), every.ids[is_there])
    return Queries(Gathered([(whole.query_QD, query_V)]), whole.gallery_GD, own, life)
