"""Distractors: which entries are added to a gallery, and that queries and answers stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from vlcpctl.evaluation.retrieval.protocols import TOP, Found
from vlcpctl.evaluation.search.count import ranks
from vlcpctl.evaluation.search.galleries import (
    DUPLICATES,
    Captioned,
    Embeddings,
    Gallery,
    gather,
    with_distractors,
)

Samples = Sequence[tuple[str, Sequence[str]]]
OWN: Samples = [("a", ["cat", "a cat"]), ("b", ["dog"]), ("c", ["dog"])]
MORE: Samples = [
    ("a", ["tom"]),  # its image is one of the own: "tom" is a right answer to it
    ("x", ["dog", "pup"]),  # its caption is one of the own: x is a right answer to it
    ("y", ["tom", "bird"]),
    ("y", ["bird"]),
    ("x", ["fox"]),
]


def captioned(samples: Samples) -> Captioned:
    return Captioned.of([image for image, _ in samples], [texts for _, texts in samples])


def embedded(part: Captioned, angles: dict[str, float]) -> Embeddings:
    """Unit vectors in the plane at these angles."""
    sides = (
        np.array([(np.cos(angles[one]), np.sin(angles[one])) for one in names], np.float32)
        for names in (part.images.names, part.texts.names)
    )
    return Embeddings(*sides)


def chosen(duplicates: str, *parts: Samples) -> Gallery:
    own, *others = map(captioned, (OWN, *parts))
    return with_distractors(gather([own], duplicates), others, duplicates)


def names(found: Gallery, *parts: Samples) -> tuple[list[str], list[str]]:
    """The images and texts of the distractors."""
    images, texts = [], []
    for number, part in enumerate(parts, 1):
        images += [part[row][0] for row in found.sample_rows[number].tolist()]
        places = zip(*found.parts[number].places(found.caption_rows[number]), strict=True)
        texts += [part[row][1][place] for row, place in places]
    return images, texts


def test_pairs_that_share_an_image_or_a_caption_are_left_out_with_all_they_have() -> None:
    found = chosen("unite", MORE)
    assert found.left_out == 2
    assert names(found, MORE) == (["y"], ["bird", "fox"])


def test_separate_duplicates_are_several_entries() -> None:
    found = chosen("separate", MORE)
    assert names(found, MORE) == (["y", "y"], ["bird", "bird", "fox"])


def test_what_several_parts_share_is_one_entry_and_left_out_of_all() -> None:
    more: Samples = [("z", ["bird", "tom"]), ("y", ["owl"]), ("x", ["hen"])]
    found = chosen("unite", MORE, more)
    assert names(found, MORE, more) == (["y", "z"], ["bird", "fox", "owl", "hen"])
    assert [len(rows) for rows in found.caption_rows] == [3, 2, 2]


def test_a_distractor_that_ties_with_an_answer_makes_it_wrong() -> None:
    own: Samples = [("a", ["cat"]), ("b", ["dog"])]
    angles = {"a": 0.0, "cat": 0.0, "b": 1.0, "dog": 1.0, "q": 0.0, "fox": 2.0}
    part, more = captioned(own), captioned([("q", ["fox"])])
    gallery = with_distractors(gather([part], "unite"), [more], "unite")
    vectors = [embedded(one, angles) for one in (part, more)]
    searches = gallery.searches(gallery.vectors(vectors[:1]), gallery.vectors(vectors))
    arrays = {way: ranks(one, "cpu", TOP) for way, one in searches.items()}
    found = Found(searches, arrays).measured()
    assert (found["n_ties"], found["n_images"], found["n_texts"]) == (1, 2, 2)
    assert (found["metrics"]["t2i_r1"], found["metrics"]["i2t_r1"]) == (50, 100)


@pytest.mark.parametrize("duplicates", DUPLICATES)
def test_own_entries_keep_their_rows(duplicates: str) -> None:
    random = np.random.default_rng(0)
    every = {one for image, texts in (*OWN, *MORE) for one in (image, *texts)}
    angles = {
        one: float(angle) for one, angle in zip(sorted(every), random.random(99), strict=False)
    }
    gallery, found = gather([captioned(OWN)], duplicates), chosen(duplicates, MORE)
    vectors = [embedded(captioned(one), angles) for one in (OWN, MORE)]
    own, larger = gallery.vectors(vectors[:1]), found.vectors(vectors)
    for few, many, added in zip(own, larger, names(found, MORE), strict=True):
        assert np.array_equal(many[: len(few)], few[:])
        wanted = [(np.cos(angles[one]), np.sin(angles[one])) for one in added]
        np.testing.assert_allclose(many[len(few) :], wanted, atol=1e-6)
