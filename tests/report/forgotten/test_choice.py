"""Which queries are shown as forgotten or gained, and which classes as confused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from vlcpctl.evaluation.rank_files import Named, QueryRanks
from vlcpctl.report.forgotten.choice import changes, confusions


def ranks_of(
    keys: Sequence[str],
    rank: Sequence[int],
    wrong: Sequence[str | None],
    captions: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
) -> QueryRanks:
    number = np.array(captions if captions is not None else [-1] * len(keys))
    answers = Named(pa.array(wrong, pa.string()), pa.array([0] * len(keys), pa.int32()))
    classes = None if labels is None else pa.array(labels)
    return QueryRanks(pa.array(keys), number, classes, np.array(rank), answers)


def test_forgotten_queries_are_ordered_by_how_far_they_fell_then_by_key() -> None:
    keys = ["a", "b", "c", "d", "e"]
    then = ranks_of(keys, [1, 1, 1, 1, 2], ["x"] * 5)
    now = ranks_of(keys, [3, 9, 3, 1, 2], ["p", "q", "r", "s", "t"])
    found = changes(then, now, 2)
    assert (found.queries, found.right_then, found.right_now) == (5, 4, 1)
    assert (found.n_forgotten, found.n_gained) == (3, 0)
    assert [(one.key, one.rank_then, one.rank_now, one.wrong) for one in found.forgotten] == [
        ("b", 1, 9, "q"),
        ("a", 1, 3, "p"),
    ]
    assert [one.key for one in changes(then, now, 9).forgotten] == ["b", "a", "c"]


def test_gained_queries_show_what_was_retrieved_then() -> None:
    then = ranks_of(["a", "b", "c"], [5, 7, 1], ["x", None, "z"])
    now = ranks_of(["a", "b", "c"], [1, 1, 1], ["p", "q", "r"])
    found = changes(then, now, 5)
    assert (found.n_forgotten, found.n_gained, found.forgotten) == (0, 2, ())
    assert [(one.key, one.rank_then, one.wrong) for one in found.gained] == [
        ("b", 7, None),
        ("a", 5, "x"),
    ]
    assert found.gained[0].wrong_caption == 0
    assert found.gained[0].caption is None


def test_each_sample_is_shown_once_and_counted_with_all_its_captions() -> None:
    keys, captions = ["a", "a", "b"], [0, 1, 0]
    then = ranks_of(keys, [1, 1, 1], ["x"] * 3, captions)
    now = ranks_of(keys, [4, 6, 5], ["p", "q", "r"], captions)
    found = changes(then, now, 5)
    assert found.n_forgotten == 3
    assert [(one.key, one.caption, one.rank_now) for one in found.forgotten] == [
        ("a", 1, 6),
        ("b", 0, 5),
    ]


def test_answers_to_several_forgotten_queries_are_counted_over_all_of_them() -> None:
    keys = ["a", "b", "c", "d", "e"]
    then = ranks_of(keys, [1, 1, 1, 1, 3], ["x"] * 5)
    now = ranks_of(keys, [2, 2, 2, 2, 3], ["hub", "one", "hub", None, "hub"])
    found = changes(then, now, 1)
    assert [(one.wrong, one.count) for one in found.instead] == [("hub", 2)]
    assert changes(then, now, 0).instead == ()


def test_pairs_of_classes_are_counted_in_both_models() -> None:
    keys, labels = ["a", "b", "c", "d"], ["cat", "cat", "cat", "dog"]
    then = ranks_of(keys, [2, 1, 1, 1], ["fox", "fox", "fox", "cat"], labels=labels)
    now = ranks_of(keys, [2, 3, 2, 2], ["fox", "fox", "dog", "cat"], labels=labels)
    late, early = confusions(then, now, 2)
    # Pictures of what was right then come first.
    assert [(one.label, one.wrong, one.then, one.now, one.keys) for one in late] == [
        ("cat", "fox", 1, 2, ("b", "a")),
        ("cat", "dog", 0, 1, ("c",)),
    ]
    assert [(one.label, one.wrong, one.then, one.now) for one in early] == [("cat", "fox", 1, 2)]


def test_a_removed_answer_is_in_no_pair_of_classes() -> None:
    then = ranks_of(["a"], [1], ["fox"], labels=["cat"])
    now = ranks_of(["a"], [2], [None], labels=["cat"])
    assert confusions(then, now, 5) == ((), ())
