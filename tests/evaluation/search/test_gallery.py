"""Identical content is one entry with all its matches; separate entries stay separate."""

from __future__ import annotations

import numpy as np

from vlcpctl.evaluation.search.gallery import (
    Embeddings,
    Gallery,
    lay_out,
    merge_galleries,
    stack_galleries,
)


def embedded(sha256s: list[str], captions: list[list[str]]) -> Embeddings:
    """A split whose embeddings encode the image's letter or the text's length."""
    layout = lay_out(sha256s, captions)
    images = np.array([[float(ord(name))] for name in layout.image_ids], dtype=np.float32)
    texts = np.array([[float(len(text))] for text in layout.texts], dtype=np.float32)
    return Embeddings(layout, images, texts)


def named_pairs(gallery: Gallery) -> list[tuple[str, int]]:
    """Each pair as the image's letter and the text's length."""
    images, texts = gallery.image_ID[:][:, 0], gallery.text_TD[:][:, 0]
    return [
        (chr(int(images[image])), int(texts[text])) for image, text in gallery.pairs_P2.tolist()
    ]


def test_each_image_keeps_all_its_captions() -> None:
    gallery = merge_galleries([embedded(["a", "b"], [["1", "22"], ["333"]])])
    assert named_pairs(gallery) == [("a", 1), ("a", 2), ("b", 3)]
    right = gallery.texts_of_images()
    assert (right.starts.tolist(), right.ids.tolist()) == ([0, 2, 3], [0, 1, 2])


def test_identical_images_are_one_entry_with_the_captions_of_both() -> None:
    gallery = merge_galleries([embedded(["a", "b", "a"], [["1"], ["22"], ["333"]])])
    assert len(gallery.image_ID) == 2
    assert named_pairs(gallery) == [("a", 1), ("a", 3), ("b", 2)]


def test_identical_texts_are_one_entry_with_the_images_of_both() -> None:
    gallery = merge_galleries([embedded(["a", "b"], [["1"], ["1", "22"]])])
    assert len(gallery.text_TD) == 2
    right = gallery.images_of_texts()
    assert (right.starts.tolist(), right.ids.tolist()) == ([0, 2, 3], [0, 1, 1])


def test_content_is_united_across_tasks() -> None:
    parts = [embedded(["a", "b"], [["1"], ["22"]]), embedded(["c", "a"], [["22"], ["333"]])]
    gallery = merge_galleries(parts)
    assert gallery.image_ID[:][:, 0].tolist() == [ord("a"), ord("b"), ord("c")]
    assert gallery.text_TD[:][:, 0].tolist() == [1, 2, 3]
    assert named_pairs(gallery) == [("a", 1), ("a", 3), ("b", 2), ("c", 2)]


def test_a_pair_that_occurs_twice_counts_once() -> None:
    gallery = merge_galleries([embedded(["a", "a"], [["1"], ["1"]])])
    assert named_pairs(gallery) == [("a", 1)]


def test_separate_keeps_every_sample_and_caption() -> None:
    parts = [embedded(["a", "a"], [["1"], ["1", "22"]]), embedded(["a"], [["1"]])]
    gallery = stack_galleries(parts)
    assert named_pairs(gallery) == [("a", 1), ("a", 1), ("a", 2), ("a", 1)]
    assert gallery.pairs_P2.tolist() == [[0, 0], [1, 1], [1, 2], [2, 3]]


def test_what_is_identical_is_embedded_once() -> None:
    layout = lay_out(["a", "b", "a"], [["1"], ["1"], ["22", "1"]])
    assert layout.first_row_I.tolist() == [0, 1]
    assert layout.texts == ["1", "22"]
