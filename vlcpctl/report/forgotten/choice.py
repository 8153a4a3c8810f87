"""Which queries show what was forgotten: pure functions of the ranks of two models.

The ranks are of the same Q queries, sorted by key and caption, each with its best wrong answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.evaluation.rank_files import QueryRanks
from vlcpctl.report.forgotten.changes import Changes, Confusion, Example, Instead

_PICTURES = 3  # of a pair of classes
_INSTEAD = 3

Pair = tuple[str, str]  # a class, and the class given instead


def changes(then: QueryRanks, now: QueryRanks, most: int) -> Changes:
    """What changed between two models, with at most `most` examples each way.

    Forgotten is what was right (rank 1) then and is wrong now, those with the worst rank now first;
    gained is the reverse, those with the worst rank then first. Ties are in the order of keys and
    captions. An image and its captions are one sample: of each, only the first query is shown.
    """
    was_right, is_right = then.rank == 1, now.rank == 1
    lost, won = np.flatnonzero(was_right & ~is_right), np.flatnonzero(is_right & ~was_right)
    return Changes(
        queries=len(then.rank),
        right_then=int(was_right.sum()),
        right_now=int(is_right.sum()),
        n_forgotten=len(lost),
        n_gained=len(won),
        forgotten=_examples(then, now, now, lost, most),
        gained=_examples(then, now, then, won, most),
        instead=_instead(now, lost) if most else (),
    )


def _instead(now: QueryRanks, rows: np.ndarray) -> tuple[Instead, ...]:
    """The most frequent wrong answers to the queries at some rows, of those given twice or more."""
    if now.wrong is None:
        return ()
    names, captions = (column.to_pylist() for column in now.wrong.at(rows))
    count = Counter(one for one in zip(names, captions, strict=True) if one[0] is not None)
    found = sorted(count.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or 0))
    return tuple(Instead(*answer, number) for answer, number in found[:_INSTEAD] if number > 1)


def _examples(
    then: QueryRanks, now: QueryRanks, worse: QueryRanks, rows: np.ndarray, most: int
) -> tuple[Example, ...]:
    """The queries at some rows, ordered by the ranks of the model that was wrong."""
    rows = rows[np.argsort(-worse.rank[rows], kind="stable")]
    chosen = _one_of_each_sample(then.keys, rows)[:most]
    wrong, wrong_caption = (None, None)
    if worse.wrong is not None:
        wrong, wrong_caption = worse.wrong.at(chosen)
    captions = then.captions[chosen].tolist()
    return tuple(
        Example(
            key=then.keys[int(row)].as_py(),
            caption=None if captions[place] < 0 else captions[place],
            label=None if then.labels is None else then.labels[int(row)].as_py(),
            rank_then=int(then.rank[row]),
            rank_now=int(now.rank[row]),
            wrong=None if wrong is None else wrong[place].as_py(),
            wrong_caption=None if wrong_caption is None else wrong_caption[place].as_py(),
        )
        for place, row in enumerate(chosen)
    )


def _one_of_each_sample(keys: pa.StringArray, rows: np.ndarray) -> np.ndarray:
    codes = keys.take(pa.array(rows)).dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    return rows[np.sort(first)]


def confusions(
    then: QueryRanks, now: QueryRanks, most: int
) -> tuple[tuple[Confusion, ...], tuple[Confusion, ...]]:
    """The pairs of classes that the last model confuses most, and those that the first confused.

    At most `most` each, by their counts in that model, then in the other, then by name. Pictures of
    the last model's are first of images that were right then.
    """
    wrong_then, wrong_now = _wrong_pairs(then), _wrong_pairs(now)
    before, after = Counter(wrong_then.values()), Counter(wrong_now.values())
    right_then = {row for row in range(len(then.rank)) if row not in wrong_then}

    def listed(
        first: Counter[Pair],
        other: Counter[Pair],
        wrong: dict[int, Pair],
        is_late: Callable[[int], bool],
    ) -> Iterator[Confusion]:
        order = sorted(first, key=lambda pair: (-first[pair], -other[pair], pair))[:most]
        rows: dict[Pair, list[int]] = {pair: [] for pair in order}
        for row in sorted(wrong, key=lambda row: (is_late(row), row)):
            if wrong[row] in rows and len(rows[wrong[row]]) < _PICTURES:
                rows[wrong[row]].append(row)
        for pair in order:
            keys = tuple(then.keys[row].as_py() for row in rows[pair])
            yield Confusion(*pair, before[pair], after[pair], keys)

    late = tuple(listed(after, before, wrong_now, lambda row: row not in right_then))
    return late, tuple(listed(before, after, wrong_then, lambda _: False))


def _wrong_pairs(ranks: QueryRanks) -> dict[int, Pair]:
    """By row: the class of an image and the class it is given, where that is wrong and known."""
    if ranks.labels is None or ranks.wrong is None:
        return {}
    given = ranks.wrong.names
    is_wrong = pc.and_(pa.array(ranks.rank > 1), pc.is_valid(given))
    rows = np.flatnonzero(is_wrong.to_numpy(zero_copy_only=False))
    places = pa.array(rows)
    pairs = zip(ranks.labels.take(places).to_pylist(), given.take(places).to_pylist(), strict=True)
    return dict(zip(rows.tolist(), pairs, strict=True))
