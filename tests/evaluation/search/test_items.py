"""Fused items: identical ones are one entry, a query is not its own answer, classes span tasks."""

from __future__ import annotations

import numpy as np

from vlcpctl.evaluation.search.items import (
    ClassSearch,
    FusedFeatures,
    lay_out_items,
    merge_items,
    stack_items,
)


def fused(*samples: str) -> FusedFeatures:
    """Samples such as "a1x": image a with caption 1, of class x; the features encode the pair."""
    items = lay_out_items([s[0] for s in samples], [s[1] for s in samples], [s[2] for s in samples])
    pairs = zip(items.image_ids, items.texts, strict=True)
    vectors = np.array([[ord(image), ord(text)] for image, text in pairs], dtype=np.float32)
    return FusedFeatures(items, vectors)


def named(vectors: np.ndarray) -> list[str]:
    return ["".join(chr(int(value)) for value in row) for row in vectors]


def right(search: ClassSearch) -> list[int]:
    return search.right_counts().tolist()


def test_a_pair_is_fused_once_whatever_its_classes() -> None:
    part = fused("a1x", "b1x", "a1y", "a2x")
    assert named(part.fused_PD) == ["a1", "b1", "a2"]
    assert part.items.first_row_P.tolist() == [0, 1, 3]
    assert part.items.pair_of_N.tolist() == [0, 1, 0, 2]


def test_united_items_are_entries_and_queries_once() -> None:
    part = [fused("a1x", "b1x", "a1x", "a2x")]
    search = merge_items(part, part).whole
    assert named(search.sides.gallery_GD) == ["a1", "b1", "a2"]
    assert search.itself_Q.tolist() == [0, 1, 2]
    assert right(search) == [2, 2, 2]


def test_separate_items_are_answers_to_their_twins() -> None:
    part = [fused("a1x", "b1x", "a1x")]
    search = stack_items(part, part).whole
    assert named(search.sides.query_QD) == ["a1", "b1", "a1"]
    assert search.itself_Q.tolist() == [0, 1, 2]
    assert right(search) == [2, 2, 2]


def test_one_content_of_two_classes_is_two_entries() -> None:
    part = [fused("a1x", "a1y")]
    search = merge_items(part, part).whole
    assert named(search.sides.gallery_GD) == ["a1", "a1"]
    assert right(search) == [0, 0]


def test_content_and_classes_are_united_across_tasks() -> None:
    parts = [fused("a1x", "b1y"), fused("c1x", "a1x", "d1z")]
    search = merge_items(parts, parts).whole
    assert named(search.sides.gallery_GD) == ["a1", "b1", "c1", "d1"]
    assert search.class_G.tolist() == [0, 1, 0, 2]
    assert named(stack_items(parts, parts).whole.sides.gallery_GD) == ["a1", "b1", "c1", "a1", "d1"]


def test_a_query_from_another_split_finds_itself_by_content_only_when_united() -> None:
    queries, gallery = [fused("b1y", "a1x", "e1w")], [fused("a1x", "b2y", "c1x")]
    search = merge_items(queries, gallery).whole
    assert search.itself_Q.tolist() == [-1, 0, -1]
    assert right(search) == [1, 1, 0]
    assert search.class_Q.tolist()[1] == search.class_G.tolist()[0]
    apart = stack_items(queries, gallery).whole
    assert apart.itself_Q.tolist() == [-1, -1, -1]
    assert right(apart) == [1, 2, 0]
