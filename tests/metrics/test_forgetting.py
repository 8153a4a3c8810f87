"""Every definition of forgetting, on matrices that can be checked by hand, and by its laws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vlcpctl.metrics import forgetting as f
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.metrics.forgetting import Matrix

Metric = Callable[[Matrix], float | None]

NAN = np.nan
# Task 0 falls 60, 50, 40; task 1 rises from 40 to 42; task 2 was just learned.
THREE = np.array([[60, NAN, NAN], [50, 40, NAN], [40, 42, 30]])
MERGED = np.array([[60, NAN, NAN], [NAN, 44, NAN], [45, 40, 35]])
OF_STEPS = [f.bwt_gem, f.bwt_incclip, f.forgetting_max, f.fr_dha]


def squares() -> st.SearchStrategy[Matrix]:
    return st.integers(2, 6).flatmap(
        lambda n: arrays(np.float64, (n, n), elements=st.floats(1, 100))
    )


def test_three_tasks_by_hand() -> None:
    assert f.own_final(THREE) == pytest.approx(112 / 3)
    assert f.own_learned(THREE) == pytest.approx(130 / 3)
    assert f.bwt_gem(THREE) == pytest.approx((-20 + 2) / 2)
    # step 1: (-10 + 0)/2, step 2: (-20 + 2 + 0)/3
    assert f.bwt_incclip(THREE) == pytest.approx((-5 - 6) / 2)
    # the best of task 0 before the last step is 60, of task 1 it is 40
    assert f.forgetting_max(THREE) == pytest.approx((20 - 2) / 2)
    assert f.fr_dha(THREE) == pytest.approx(100 * (20 / 60 - 2 / 40) / 2)


def test_merged_galleries_by_hand() -> None:
    assert f.bwt_ctp(MERGED) == pytest.approx((15 + 4) / 2)
    assert f.merged_final(MERGED) == 35


def test_two_tasks_have_one_to_forget() -> None:
    matrix = np.array([[60.0, NAN], [40.0, 50.0]])
    assert [metric(matrix) for metric in OF_STEPS] == pytest.approx([-20, -10, 20, 100 / 3])


@pytest.mark.parametrize("metric", [*OF_STEPS, f.bwt_ctp])
def test_one_task_cannot_be_forgotten(metric: Metric) -> None:
    assert metric(np.array([[60.0]])) is None


def test_only_the_cells_of_the_definition_are_needed() -> None:
    matrix = THREE.copy()
    matrix[1, 0] = NAN
    assert f.bwt_gem(matrix) == -9


def test_nothing_learned_has_no_forgetting_rate() -> None:
    assert f.fr_dha(np.array([[0.0, NAN], [0.0, 50.0]])) is None


def test_forward_transfer_is_over_the_start() -> None:
    start = np.array([[5.0, 10, 20]])
    steps = np.array([[60.0, 13, NAN], [50, 40, 25], [40, 42, 30]])
    assert f.fwt_gem(np.vstack([start, steps])) == pytest.approx((3 + 5) / 2)
    assert f.fwt_gem(np.vstack([start * NAN, steps])) is None
    assert f.fwt_gem(np.array([[5.0], [60.0]])) is None


def by_loops(name: str, matrix: Matrix) -> float:
    """The printed sums, a cell at a time; of a merged matrix for `bwt_ctp`."""
    n, total = len(matrix), 0.0
    for j in range(n - 1):
        learned, final = matrix[j, j], matrix[n - 1, j]
        if name == "bwt_gem":
            total += (final - learned) / (n - 1)
        elif name == "bwt_ctp":
            total += (learned - final) / (n - 1)
        elif name == "fr_dha":
            total += 100 * (learned - final) / learned / (n - 1)
        elif name == "forgetting_max":
            total += (max(matrix[t, j] for t in range(j, n - 1)) - final) / (n - 1)
    if name == "bwt_incclip":
        for i in range(2, n + 1):  # counted from 1, as the paper does
            for j in range(1, i + 1):
                total += (matrix[i - 1, j - 1] - matrix[j - 1, j - 1]) / i / (n - 1)
    return total


@pytest.mark.parametrize("name", ["bwt_gem", "bwt_ctp", "bwt_incclip", "forgetting_max", "fr_dha"])
@given(matrix=squares())
def test_each_is_the_sum_of_its_definition(name: str, matrix: Matrix) -> None:
    ahead = np.triu(np.ones_like(matrix, dtype=bool), 1)
    matrix = np.where(ahead, NAN, matrix)
    assert getattr(f, name)(matrix) == pytest.approx(by_loops(name, matrix), abs=1e-9)


ENDS = ((0, 0), (1, 1), (2, 0), (2, 1))  # where a task was learned, and the last row


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        *((name, cell) for name in ("bwt_gem", "fr_dha", "bwt_ctp") for cell in ENDS),
        *(("bwt_incclip", cell) for cell in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2))),
        *(("forgetting_max", cell) for cell in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1))),
    ],
)
def test_every_cell_of_a_definition_is_needed(name: str, cell: tuple[int, int]) -> None:
    matrix = np.array([[60.0, NAN, NAN], [50, 40, NAN], [40, 42, 30]])
    assert getattr(f, name)(matrix) is not None
    matrix[cell] = NAN
    assert getattr(f, name)(matrix) is None


def test_every_definition_says_how_to_read_it() -> None:
    for name, definition in DEFINITIONS.items():
        assert definition.name == name
        assert definition.formula
        assert definition.reading


def test_a_rate_of_next_to_nothing_is_undefined() -> None:
    assert f.fr_dha(np.array([[1e-300, np.nan], [1e6, 50.0]])) is None
