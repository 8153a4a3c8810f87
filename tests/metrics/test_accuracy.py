"""Accuracies agree with sorting by hand, and counts of batches add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.metrics.accuracy import Tally, accuracies, mean_accuracies, tally


def naive(ranks: list[int], labels: list[int], classes: int) -> dict[str, float]:
    """Image by image and class by class."""
    found = {"acc1": 100 * sum(rank == 1 for rank in ranks) / len(ranks)}
    if classes >= 5:
        found["acc5"] = 100 * sum(rank <= 5 for rank in ranks) / len(ranks)
    recalls = []
    for label in sorted(set(labels)):
        own = [rank for rank, other in zip(ranks, labels, strict=True) if other == label]
        recalls.append(sum(rank == 1 for rank in own) / len(own))
    found["mean_per_class_recall"] = 100 * sum(recalls) / len(recalls)
    return found


images = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=40)


def counted(pairs: list[tuple[int, int]], classes: int) -> Tally:
    ranks, labels = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return tally(ranks, labels, classes)


@given(images)
def test_accuracies_are_those_of_a_loop(pairs: list[tuple[int, int]]) -> None:
    ranks, labels = [list(side) for side in zip(*pairs, strict=True)]
    assert accuracies(counted(pairs, 7)) == pytest.approx(naive(ranks, labels, 7))


@given(images, images)
def test_batches_add_up(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    together = accuracies(counted(first + second, 7))
    assert accuracies(counted(first, 7) + counted(second, 7)) == together


@pytest.mark.parametrize(("classes", "has_acc5"), [(4, False), (5, True)])
def test_the_first_five_of_fewer_than_five_classes_say_nothing(
    classes: int, has_acc5: bool
) -> None:
    found = accuracies(counted([(1, 0), (4, 3)], classes))
    assert ("acc5" in found) == has_acc5
    assert next(iter(found)) == "acc1"


def test_a_class_without_images_is_no_part_of_the_mean() -> None:
    assert accuracies(counted([(1, 0), (2, 1)], 7))["mean_per_class_recall"] == 50


def test_the_mean_over_data_sets_weighs_them_equally() -> None:
    assert mean_accuracies([{"acc1": 10.0}, {"acc1": 40.0}, {"acc1": 10.0}]) == {"acc1": 20.0}
