"""Herding: agrees with the CTP authors' where theirs ends, keeps its order, and always ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vlcpctl.select.herding import herd

GOLDEN = np.load(Path(__file__).parents[1] / "authors" / "data" / "selection.npz")


def normalised(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def golden(case: int) -> tuple[np.ndarray, int, list[int]]:
    order = GOLDEN[f"herding/{case}/order_1based_0_if_not_selected"]
    picked = np.argsort(np.where(order > 0, order, np.inf))[: int((order > 0).sum())]
    features = normalised(GOLDEN[f"herding/{case}/features"])
    return features, int(GOLDEN[f"herding/{case}/memory_size"]), picked.tolist()


@pytest.mark.golden
@pytest.mark.parametrize("case", [0, 1, 4, 5])
def test_order_is_the_authors_where_they_never_pick_twice(case: int) -> None:
    features, count, picked = golden(case)
    assert herd(features, count).tolist() == picked


@pytest.mark.golden
@pytest.mark.parametrize("case", range(6))
def test_selected_set_is_the_authors(case: int) -> None:
    features, count, picked = golden(case)
    assert sorted(herd(features, count)) == sorted(picked)


def test_equal_rows_do_not_loop_and_are_each_picked_once() -> None:
    features = normalised(GOLDEN["herding_duplicates/features"])
    assert sorted(herd(features, 6)) == list(range(6))


def test_a_prefix_stays_nearer_to_the_mean_than_random_items() -> None:
    random = np.random.default_rng(0)
    features = normalised(random.normal(size=(500, 16)) + 1)
    herded = features[herd(features, 200)[:50]].mean(axis=0)
    chosen = features[random.permutation(500)[:50]].mean(axis=0)
    mean = features.mean(axis=0)
    assert np.linalg.norm(herded - mean) < 0.3 * np.linalg.norm(chosen - mean)
