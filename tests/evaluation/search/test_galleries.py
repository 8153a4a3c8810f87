"""Identical content is one entry with all its matches; separate entries stay separate."""

from __future__ import annotations

import numpy as np

from vlcpctl.evaluation.search.galleries import (
    DUPLICATES,
    Captioned,
    Classified,
    ClassSearch,
    Distinct,
    Embeddings,
    gather,
    gather_classes,
)
from vlcpctl.evaluation.search.vectors import Vectors


def pairs(duplicates: str, *parts: tuple[list[str], list[list[str]]]) -> list[tuple[str, int]]:
    """Each pair of a gallery as the image's letter and the text's length."""
    captioned = [Captioned.of(*part) for part in parts]
    gallery = gather(captioned, duplicates)
    vectors = gallery.vectors(
        [
            Embeddings(
                np.array([[ord(name)] for name in one.images.names], np.float32),
                np.array([[len(text)] for text in one.texts.names], np.float32),
            )
            for one in captioned
        ]
    )
    images, texts = vectors.image_ID[:][:, 0], vectors.text_TD[:][:, 0]
    assert gallery.ends_M2[-1].tolist() == [len(images), len(texts)]
    # Entries come from the first sample, or caption, with their content.
    names = [
        ord(part[0][row])
        for part, rows in zip(parts, gallery.sample_rows, strict=True)
        for row in rows.tolist()
    ]
    lengths = [
        len(part[1][row][place])
        for part, one, rows in zip(parts, captioned, gallery.caption_rows, strict=True)
        for row, place in zip(*one.places(rows), strict=True)
    ]
    assert (names, lengths) == (images.tolist(), texts.tolist())
    return [(chr(int(images[image])), int(texts[text])) for image, text in gallery.pairs_P2]


def test_identical_content_is_one_entry_with_the_matches_of_all() -> None:
    cases = [
        ((["a", "b"], [["1", "22"], ["333"]]), [("a", 1), ("a", 2), ("b", 3)]),
        ((["a", "b", "a"], [["1"], ["22"], ["333"]]), [("a", 1), ("a", 3), ("b", 2)]),
        ((["a", "b"], [["1"], ["1", "22"]]), [("a", 1), ("b", 1), ("b", 2)]),
        ((["a", "a"], [["1"], ["1"]]), [("a", 1)]),
    ]
    for part, wanted in cases:
        assert pairs("unite", part) == wanted
    parts = (["a", "b"], [["1"], ["22"]]), (["c", "a"], [["22"], ["333"]])
    assert pairs("unite", *parts) == [("a", 1), ("a", 3), ("b", 2), ("c", 2)]


def test_separate_keeps_every_sample_and_caption() -> None:
    parts = (["a", "a"], [["1"], ["1", "22"]]), (["a"], [["1"]])
    assert pairs("separate", *parts) == [("a", 1), ("a", 1), ("a", 2), ("a", 1)]


def test_galleries_start_with_those_of_fewer_parts() -> None:
    random = np.random.default_rng(3)
    parts = [
        Captioned.of(
            random.integers(0, 9, 8).tolist(),
            [[str(one) for one in random.integers(0, 9, 2)] for _ in range(8)],
        )
        for _ in range(4)
    ]
    for duplicates in DUPLICATES:
        whole = gather(parts, duplicates)
        for number in range(1, 5):
            own = gather(parts[:number], duplicates)
            assert np.array_equal(whole.ends_M2[:number], own.ends_M2)
            assert np.array_equal(whole.pairs_P2[whole.part_P < number], own.pairs_P2)
            for name in ("sample_rows", "caption_rows"):
                starts = zip(vars(whole)[name], vars(own)[name], strict=False)
                assert all(np.array_equal(*both) for both in starts)


def fused(*samples: str) -> tuple[Classified, Vectors]:
    """Samples such as "a1x": image a with caption 1, of class x; the features encode the pair."""
    items = Classified(Distinct.of((s[0], s[1]) for s in samples), [s[2] for s in samples])
    vectors = [[ord(image), ord(text)] for image, text in items.pairs.names]
    return items, np.array(vectors, np.float32)


def named(vectors: Vectors) -> list[str]:
    return ["".join(chr(int(value)) for value in row) for row in vectors[:]]


def right(search: ClassSearch) -> list[int]:
    return search.right_counts(len(search.ends_M))[0].tolist()


def test_items_are_united_by_content_and_class_or_separate() -> None:
    cases = [
        (["a1x", "b1x", "a1x", "a2x"], "unite", ["a1", "b1", "a2"], [2, 2, 2]),
        (["a1x", "b1x", "a1x"], "separate", ["a1", "b1", "a1"], [2, 2, 2]),
        (["a1x", "a1y"], "unite", ["a1", "a1"], [0, 0]),
    ]
    for samples, duplicates, entries, counts in cases:
        part = [fused(*samples)]
        search = gather_classes(part, part, duplicates)
        assert (named(search.gallery_GD), right(search)) == (entries, counts)
        assert search.itself_Q.tolist() == [*range(len(entries))]
    items, vectors = fused("a1x", "b1x", "a1y", "a2x")  # a pair is fused once for both classes
    assert (named(vectors), items.pairs.first_D.tolist()) == (["a1", "b1", "a2"], [0, 1, 3])


def test_content_and_classes_are_united_across_tasks() -> None:
    parts = [fused("a1x", "b1y"), fused("c1x", "a1x", "d1z")]
    search = gather_classes(parts, parts, "unite")
    assert named(search.gallery_GD) == ["a1", "b1", "c1", "d1"]
    assert search.class_G.tolist() == [0, 1, 0, 2]
    assert search.ends_M.tolist() == search.query_ends.tolist() == [2, 4]
    separate = gather_classes(parts, parts, "separate")
    assert named(separate.gallery_GD) == ["a1", "b1", "c1", "a1", "d1"]


def test_a_query_from_another_split_finds_itself_by_content_only_when_united() -> None:
    queries, gallery = [fused("b1y", "a1x", "e1w")], [fused("a1x", "b2y", "c1x")]
    search = gather_classes(queries, gallery, "unite")
    assert (search.itself_Q.tolist(), right(search)) == ([-1, 0, -1], [1, 1, 0])
    assert search.class_Q[1] == search.class_G[0]
    apart = gather_classes(queries, gallery, "separate")
    assert (apart.itself_Q.tolist(), right(apart)) == ([-1, -1, -1], [1, 2, 0])
