"""Ranks of right answers; a tie is never a hit, and every backend gives the same ranks.

Shapes: Q queries, G gallery rows, K candidates, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vlcpctl.evaluation.search.candidates import (
    BAND,
    Mask,
    QueryAndGallery,
    Scores,
    SearchCandidates,
    exact_scores,
    search_until_settled,
)
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.index import Ids, Index, Vectors


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


@dataclass(frozen=True)
class Queries:
    """Queries with their gallery and their right answers; every query has at least one."""

    query_QD: Vectors
    gallery_GD: Vectors
    right: RightAnswers


def rank(queries: Queries, index: Index, top: int) -> Ranks:
    """The ranks up to `top`; `index` holds the queries' gallery.

    Only wrong answers can outrank a right one, so other right answers do not lower the rank.
    """
    sides = QueryAndGallery(queries.query_QD, queries.gallery_GD)
    count = len(sides.query_QD)
    ranks = Ranks(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64))

    def settle(rows: Ids, score_QK: Vectors, id_QK: Ids) -> Ids:
        is_right = is_right_answer(queries.right, rows, id_QK, len(sides.gallery_GD))
        found = SearchCandidates(sides, rows, score_QK, id_QK, (id_QK >= 0) & ~is_right)
        return _rank_block(found, queries.right, ranks, top)

    # With `top` candidates more than right answers, they either reach below the tie band or hold
    # `top` wrong answers. More are needed only if float32 cannot tell which side of the band's
    # edge the last candidate is on.
    search_until_settled(sides, index, queries.right.counts + top, settle)
    return ranks


def _rank_block(found: SearchCandidates, right: RightAnswers, ranks: Ranks, top: int) -> Ids:
    """Record the ranks of a block of queries; return the rows that need more candidates."""
    best_right = best_right_scores(found.sides, right, found.row_Q)
    is_cut = np.zeros(len(found.row_Q), dtype=bool)
    for rank_Q, edge_Q in ((ranks.worst, best_right - BAND), (ranks.best, best_right + BAND)):
        count_Q = found.count_rivals(edge_Q)
        rank_Q[found.row_Q] = 1 + np.minimum(count_Q, top)
        is_cut |= (count_Q < top) & found.may_miss(edge_Q)
    return found.row_Q[is_cut]


def best_right_scores(sides: QueryAndGallery, right: RightAnswers, rows: Ids) -> Scores:
    """The score of the best right answer of each of these queries."""
    query_A, scores = right_scores(sides, right, rows)
    starts = np.searchsorted(query_A, np.arange(len(rows)))
    best: Scores = np.maximum.reduceat(scores, starts)
    return best


def right_scores(sides: QueryAndGallery, right: RightAnswers, rows: Ids) -> tuple[Ids, Scores]:
    """The place in `rows` (A,), ascending, and the exact score (A,) of each right answer."""
    counts = right.counts[rows]
    scores = exact_scores(sides, np.repeat(rows, counts), answers_of(right, rows))
    return np.repeat(np.arange(len(rows)), counts), scores


def is_right_answer(right: RightAnswers, rows: Ids, id_QK: Ids, gallery_size: int) -> Mask:
    """(Q, K) which candidates of these queries are right answers; `gallery_size` is G."""
    # A (query, gallery row) pair becomes one number: `known` is sorted, so one search finds all.
    place = np.arange(len(rows))
    known = np.repeat(place, right.counts[rows]) * gallery_size + answers_of(right, rows)
    asked = (place[:, None] * gallery_size + id_QK).ravel()
    nearest = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    is_right: Mask = (known[nearest] == asked).reshape(id_QK.shape)
    return is_right


def answers_of(right: RightAnswers, rows: Ids) -> Ids:
    """The right answers of these queries, concatenated."""
    counts = right.counts[rows]
    starts = np.cumsum(counts) - counts
    shift = np.repeat(right.starts[rows] - starts, counts)
    answers: Ids = right.ids[np.arange(counts.sum()) + shift]
    return answers
