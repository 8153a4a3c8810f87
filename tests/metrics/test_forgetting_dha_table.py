"""The forgetting rate agrees with Table 1 of DHA, whose printed formula does not."""

from __future__ import annotations

import numpy as np
import pytest

from vlcpctl.metrics.forgetting import fr_dha

# Method: final R@mean and FR on the first task, then the average FR's parts (T1, T2, T3) and FR.
T2I = {
    "Baseline": (13.64, (68.30, 64.82, 40.25), 57.79),
    "LwF": (16.81, (60.94, 56.31, 31.41), 49.55),
    "ER": (16.30, (62.12, 55.08, 36.42), 51.21),
    "DER": (20.52, (52.31, 41.74, 24.07), 39.37),
    "CO2L": (19.64, (54.35, 46.14, 24.94), 41.81),
    "DHA, no buffer": (21.31, (50.48, 37.15, 27.09), 38.24),
    "DHA": (24.58, (42.88, 33.82, 24.50), 33.73),
}
I2T = {
    "Baseline": (17.26, (66.48, 68.60, 42.02), 59.03),
    "LwF": (21.59, (58.07, 57.58, 34.69), 50.11),
    "ER": (21.23, (58.57, 57.79, 37.83), 51.40),
    "DER": (27.55, (46.49, 47.31, 26.43), 40.08),
    "CO2L": (26.23, (49.06, 52.18, 27.67), 42.97),
    "DHA, no buffer": (27.91, (45.80, 50.28, 30.11), 42.06),
    "DHA": (32.72, (36.45, 39.50, 24.71), 33.55),
}
# The first task is learned alike by every method, which is how the table gives it away.
LEARNED_T2I, LEARNED_I2T = 43.03, 51.49
ROUNDING = 0.03  # of a number with two decimals, through the quotient


def first_task(learned: float, final: float) -> float | None:
    return fr_dha(np.array([[learned, np.nan], [final, 50.0]]))


@pytest.mark.parametrize("method", T2I)
def test_t2i_rate_of_the_first_task(method: str) -> None:
    final, (printed, *_), _ = T2I[method]
    assert first_task(LEARNED_T2I, final) == pytest.approx(printed, abs=ROUNDING)
    assert final / (1 - printed / 100) == pytest.approx(LEARNED_T2I, abs=0.02)


def test_i2t_rate_of_the_first_task_in_six_rows_of_seven() -> None:
    agree = [
        method
        for method, (final, (printed, *_), _) in I2T.items()
        if final / (1 - printed / 100) == pytest.approx(LEARNED_I2T, abs=0.02)
    ]
    assert set(I2T) - set(agree) == {"ER"}
    for method in agree:
        final, (printed, *_), _ = I2T[method]
        assert first_task(LEARNED_I2T, final) == pytest.approx(printed, abs=ROUNDING)


@pytest.mark.parametrize("rows", [T2I, I2T], ids=["t2i", "i2t"])
def test_the_average_is_over_the_tasks_before_the_last(
    rows: dict[str, tuple[float, tuple[float, float, float], float]],
) -> None:
    for _, rates, average in rows.values():
        matrix = np.full((4, 4), np.nan)
        np.fill_diagonal(matrix, 100)
        matrix[3, :3] = 100 - np.array(rates)
        assert fr_dha(matrix) == pytest.approx(average, abs=0.011)
