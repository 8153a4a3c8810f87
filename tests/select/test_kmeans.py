"""k-means: one item a cluster, none twice, and a clear word where FAISS is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vlcpctl.select.kmeans import in_order_of_centroids, nearest_to_centroids, pick_nearest

GOLDEN = np.load(Path(__file__).parents[1] / "authors" / "data" / "selection.npz")


def normalised(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)


@pytest.mark.golden
def test_clear_groups_give_one_item_each() -> None:
    pytest.importorskip("faiss")
    picked = nearest_to_centroids(normalised(GOLDEN["kmeans_clear/features"]), 3, seed=0)
    groups = {str(name)[:2] for name in GOLDEN["kmeans_clear/ids"][picked]}
    assert groups == {str(name)[:2] for name in GOLDEN["kmeans_clear/selected_ids"]}


@pytest.mark.golden
def test_nearest_items_to_the_authors_centroids_are_theirs() -> None:
    centroids = GOLDEN["kmeans_random/centroids"]
    features = normalised(GOLDEN["kmeans_random/features"])
    picked = pick_nearest(features, centroids, np.arange(5, 0, -1))
    assert [f"k{row:02d}" for row in picked] == GOLDEN["kmeans_random/selected_ids"].tolist()


@pytest.mark.golden
def test_equal_items_are_not_picked_twice() -> None:
    features = normalised(GOLDEN["kmeans_duplicates/example_features"])
    count = int(GOLDEN["kmeans_duplicates/example_k"])
    assert len(np.unique(features, axis=0)) < len(features)
    picked = pick_nearest(features, np.repeat(features[:1], count, axis=0), np.arange(count))
    assert len(set(picked.tolist())) == count


def test_items_of_large_clusters_come_first() -> None:
    features = np.array([[0.0], [0.1], [5.0], [5.1], [5.2], [9.0]])
    centroids, members = np.array([[9.0], [0.0], [5.1]]), np.array([1, 2, 3])
    assert pick_nearest(features, centroids, members).tolist() == [3, 0, 5]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_as_many_rows_are_picked_as_are_asked_for(count: int) -> None:
    pytest.importorskip("faiss")
    features = np.random.default_rng(0).standard_normal((8, 4))
    assert len(set(in_order_of_centroids(features, count))) == count


class Watched(np.ndarray):
    """Features that record what is computed from them."""

    done: list[str]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **named: Any) -> Any:
        self.done.append(ufunc.__name__)
        plain = [np.asarray(one) if isinstance(one, Watched) else one for one in given]
        return getattr(ufunc, method)(*plain, **named)


def test_more_items_than_rows_picks_every_row_once() -> None:
    pytest.importorskip("faiss")
    features = normalised(np.random.default_rng(0).normal(size=(6, 4)))
    assert sorted(nearest_to_centroids(features, 20, seed=0)) == list(range(6))
    assert nearest_to_centroids(features, 0, seed=0).shape == (0,)
