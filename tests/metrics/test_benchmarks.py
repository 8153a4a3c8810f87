"""Numbers of newer benchmarks, by hand and as their authors print them."""

from __future__ import annotations

import numpy as np
import pytest

from vlcpctl.metrics import benchmarks as b
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.metrics.forgetting import own_final

NAN = np.nan
THREE = np.array([[60.0, 20, 10], [50, 40, 20], [40, 42, 30]])

# An experiment on MTIL (eleven data sets) that the authors of ZSCL publish with their code, in
# mtil/results.ipynb, and the three numbers that are printed under it.
MTIL = """
1.770177 74.481567 45.47 36.436170 39.648148 4.732477 35.445545 39.87 16.244208 30.257431 56.310055
0.990099 62.039171 25.90 22.978723 33.166667 2.862254 19.659406 65.80 13.082584 6.703146 23.125374
0.960096 36.175115 13.55 16.436170 23.388889 2.130428 9.172277 52.59 9.648406 3.693570 11.475334
0.690069 38.536866 21.47 16.648936 9.666667 4.342169 12.574257 47.62 12.101390 5.521701 14.403935
0.720072 43.778802 17.60 15.212766 3.370370 7.985038 10.859406 32.87 14.445353 3.656262 15.967082
2.040204 35.195853 8.88 7.819149 10.796296 1.707595 7.073267 43.44 12.373944 2.959831 10.771919
1.380138 40.725806 12.89 11.648936 15.000000 1.349813 9.184158 51.44 15.944399 2.910086 13.047676
1.440144 19.297235 2.05 8.297872 12.574074 0.992031 3.398020 10.12 3.161624 1.019774 9.043262
1.110111 40.149770 13.10 6.808511 12.518519 0.845666 7.192079 8.11 4.142818 2.362890 13.314330
1.350135 44.124424 16.20 6.808511 12.425926 0.764352 9.635644 18.97 6.650313 0.820793 15.875132
0.930093 33.928571 12.25 7.074468 13.592593 1.366076 8.249505 34.84 5.342055 1.280935 0.836743
"""


def test_three_tasks_by_hand() -> None:
    # task 1 before step 1: 20; task 2 before step 2: 10 and 20
    assert b.transfer_zscl(THREE) == pytest.approx((20 + 15) / 2)
    assert b.avg_zscl(THREE) == pytest.approx((90 + 110 + 112) / 9)
    assert b.last_zscl(THREE) == pytest.approx(112 / 3)
    assert b.ka_fomo(THREE) == pytest.approx(112 / 3)


def test_the_numbers_that_the_authors_of_zscl_print() -> None:
    matrix = np.array([line.split() for line in MTIL.split("\n") if line], dtype=np.float64)
    found = [of(matrix) for of in (b.transfer_zscl, b.avg_zscl, b.last_zscl)]
    assert [round(value or NAN, 1) for value in found] == [26.7, 16.0, 10.9]


def test_a_task_that_was_not_trained_on_yet_does_not_count() -> None:
    longer = np.hstack([THREE, np.full((3, 2), 77.0)])
    for of in (b.transfer_zscl, b.avg_zscl, b.last_zscl, b.ka_fomo):
        assert of(longer) == of(THREE)


def test_one_task_has_no_transfer() -> None:
    assert b.transfer_zscl(np.array([[60.0]])) is None
    assert b.avg_zscl(np.array([[60.0]])) == 60


def test_scores_ahead_of_learning_are_needed_for_transfer_and_average_only() -> None:
    seen = np.where(np.tri(3, dtype=bool), THREE, NAN)
    assert b.transfer_zscl(seen) is None
    assert b.avg_zscl(seen) is None
    assert b.ka_fomo(seen) == own_final(THREE)


def test_retention_is_the_mean_over_data_sets_of_the_last_model() -> None:
    assert b.zs_fomo(np.array([[90.0, 10.0], [50.0, 30.0]])) == 40
    assert b.zs_fomo(np.array([[50.0, NAN]])) is None
    assert b.zs_fomo(np.empty((1, 0))) is None


def test_every_definition_has_a_source() -> None:
    assert all(definition.source for definition in DEFINITIONS.values())
    assert {definition.least_tasks for definition in DEFINITIONS.values()} == {1, 2}
