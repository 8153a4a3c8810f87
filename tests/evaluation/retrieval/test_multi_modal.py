"""Whole evaluations of fused items: perfect and collapsed models, and the authors' numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vlcpctl.evaluation.retrieval.protocols import TOP, precisions
from vlcpctl.evaluation.search.count import hits
from vlcpctl.evaluation.search.galleries import ClassSearch
from vlcpctl.metrics.average_precision import DEFAULT_VARIANT, VARIANTS

ARRAYS = np.load(Path(__file__).parents[2] / "metrics" / "data" / "average_precision.npz")
LEFT = {  # see tests/metrics/test_average_precision.py
    "hand_ties_first_index_wins",
    "hand_query_class_not_in_gallery",
}
GALLERIES = sorted({name.split("/")[1] for name in ARRAYS.files if name.startswith("map/")} - LEFT)


def together(vectors: np.ndarray, classes: np.ndarray) -> ClassSearch:
    """Every item is a query among all others."""
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return ClassSearch.of(unit, unit, classes, classes, np.arange(len(unit)))


def of_the_authors(name: str) -> ClassSearch:
    """One entry of the `map` goldens."""
    ids, labels = ARRAYS[f"map/{name}/gallery_ids"], ARRAYS[f"map/{name}/gallery_labels"]
    asked = ARRAYS[f"map/{name}/query_ids"].tolist()
    names, class_G = np.unique(labels, return_inverse=True)
    class_Q = np.searchsorted(names, ARRAYS[f"map/{name}/query_labels"])
    rows = {one: row for row, one in enumerate(ids.tolist())}
    itself = np.array([rows.get(one, -1) for one in asked])
    # A search of the unit vectors with a row of scores finds these very scores.
    units = np.eye(len(ids), dtype=np.float32)
    return ClassSearch.of(ARRAYS[f"map/{name}/scores"], units, class_Q, class_G, itself)


def found_in(search: ClassSearch, variant: str = DEFAULT_VARIANT) -> dict[str, Any]:
    found = hits(search, "cpu", TOP, range(len(search.class_Q)))
    return precisions(search, found, variant=variant)


@pytest.mark.golden
@pytest.mark.parametrize("name", GALLERIES)
def test_a_search_scores_as_in_the_authors_code(name: str) -> None:
    found = found_in(of_the_authors(name), "ctp")
    wanted = ARRAYS[f"map/{name}/mAP_1_5_10"].tolist()
    assert list(found["metrics"].values()) == pytest.approx(wanted, abs=1e-9)
    assert found["n_ties"] == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_perfect_model_scores_100(variant: str) -> None:
    classes = np.repeat(np.arange(20), 12)
    random = np.random.default_rng(0)
    vectors = np.eye(20)[classes] + 0.01 * random.standard_normal((240, 20))
    found = found_in(together(vectors, classes), variant)
    assert found["metrics"] == {"map_1": 100.0, "map_5": 100.0, "map_10": 100.0}
    assert tuple(found[name] for name in ("n_queries", "n_gallery", "n_ties", "n_alone")) == (
        240,
        240,
        0,
        0,
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_collapsed_model_scores_0_and_every_query_is_a_tie(variant: str) -> None:
    classes = np.repeat(np.arange(10), 30)
    found = found_in(together(np.ones((300, 8)), classes), variant)
    assert found["metrics"] == {"map_1": 0.0, "map_5": 0.0, "map_10": 0.0}
    assert found["n_ties"] == 300


def test_the_authors_cut_offs_know_a_query_that_the_gallery_holds() -> None:
    # The other of the class is second: of a class of two, two places are looked at.
    vectors = np.array([[1, 0], [1, 0.1], [1, 0.2]])
    inside = together(vectors, np.array([0, 1, 0]))
    found = found_in(inside, "ctp")
    assert found["metrics"]["map_5"] == pytest.approx(100 * (0.5 + 0 + 0.5) / 3)


def test_a_query_without_a_right_answer_scores_0_and_is_counted() -> None:
    classes = np.array([0, 0, 1])
    found = found_in(together(np.eye(3) + 0.1, classes))
    assert found["n_alone"] == 1
    assert found["metrics"]["map_10"] == pytest.approx(100 * (0.5 + 0.5) / 3)


def test_a_gallery_smaller_than_the_list_is_searched_whole() -> None:
    vectors = np.array([[1, 0], [1, 0.1], [1, 0.3], [0, 1]])
    found = found_in(together(vectors, np.array([0, 1, 0, 1])))
    assert found["metrics"]["map_1"] == 0
    assert found["n_gallery"] == 4
