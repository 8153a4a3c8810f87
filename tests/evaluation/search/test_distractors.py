"""Distractors: which entries are added to a gallery, and that queries and answers stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from vlcpctl.evaluation.retrieval.cross_modal import result, search
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.distractors import Distractors, choose_distractors
from vlcpctl.evaluation.search.gallery import GATHER, Embeddings, lay_out
from vlcpctl.evaluation.search.queries import both_ways

Samples = Sequence[tuple[str, Sequence[str]]]
OWN: Samples = [("a", ["cat", "a cat"]), ("b", ["dog"]), ("c", ["dog"])]
MORE: Samples = [
    ("a", ["tom"]),  # its image is one of the own: "tom" is a right answer to it
    ("x", ["dog", "pup"]),  # its caption is one of the own: x is a right answer to it
    ("y", ["tom", "bird"]),
    ("y", ["bird"]),
    ("x", ["fox"]),
]


def embedded(samples: Samples, angles: dict[str, float]) -> Embeddings:
    """Unit vectors in the plane at these angles."""
    layout = lay_out([image for image, _ in samples], [texts for _, texts in samples])
    images, texts = (
        np.array([(np.cos(angles[one]), np.sin(angles[one])) for one in names], np.float32)
        for names in (layout.image_ids, layout.texts)
    )
    return Embeddings(layout, images, texts)


def chosen(duplicates: str, *parts: Samples) -> Distractors:
    own, *others = (lay_out([a for a, _ in one], [b for _, b in one]) for one in (OWN, *parts))
    return choose_distractors([own], others, duplicates)


def names(found: Distractors, *parts: Samples) -> tuple[list[str], list[str]]:
    images = [parts[part][row][0] for part, row in found.sources.image_I2.tolist()]
    texts = [parts[part][row][1][place] for part, row, place in found.sources.text_T3.tolist()]
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
    assert [len(rows) for rows in found.text_rows] == [2, 2]


def test_a_distractor_that_ties_with_an_answer_makes_it_wrong() -> None:
    own: Samples = [("a", ["cat"]), ("b", ["dog"])]
    angles = {"a": 0.0, "cat": 0.0, "b": 1.0, "dog": 1.0, "q": 0.0, "fox": 2.0}
    part, more = embedded(own, angles), embedded([("q", ["fox"])], angles)
    gallery = GATHER["unite"]([part])
    with_more = choose_distractors([part.layout], [more.layout], "unite").added_to(gallery, [more])
    for backend in ("faiss", "torch"):
        found = result(search(both_ways(gallery, with_more), choose(backend, "cpu")))
        assert (found.n_ties, found.n_images, found.n_texts) == (1, 2, 2)
        assert (found.metrics["t2i_r1"], found.metrics["i2t_r1"]) == (50, 100)


@pytest.mark.parametrize("duplicates", ["unite", "separate"])
def test_own_entries_keep_their_rows(duplicates: str) -> None:
    random = np.random.default_rng(0)
    every = {one for image, texts in (*OWN, *MORE) for one in (image, *texts)}
    angles = {
        one: float(angle) for one, angle in zip(sorted(every), random.random(99), strict=False)
    }
    part, more = embedded(OWN, angles), embedded(MORE, angles)
    gallery = GATHER[duplicates]([part])
    found = choose_distractors([part.layout], [more.layout], duplicates)
    larger = found.added_to(gallery, [more])
    assert (larger.image_ID[: len(gallery.image_ID)] == gallery.image_ID).all()
    images, texts = names(found, MORE)
    for matrix, added, before in (
        (larger.image_ID, images, len(gallery.image_ID)),
        (larger.text_TD, texts, len(gallery.text_TD)),
    ):
        wanted = [(np.cos(angles[one]), np.sin(angles[one])) for one in added]
        np.testing.assert_allclose(matrix[before:], wanted, atol=1e-6)
