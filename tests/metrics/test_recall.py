"""Recalls against what the evaluation code of the CTP authors printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vlcpctl.metrics.recall import recall_at, recalls

ARRAYS = np.load(Path(__file__).parent / "data" / "itm_eval.npz")
OUR_NAMES = {
    "txt_r1": "i2t_r1",
    "txt_r5": "i2t_r5",
    "txt_r10": "i2t_r10",
    "txt_r_mean": "i2t_rmean",
    "img_r1": "t2i_r1",
    "img_r5": "t2i_r5",
    "img_r10": "t2i_r10",
    "img_r_mean": "t2i_rmean",
    "r_mean": "rm",
}

LEFT = {
    "all_ties": "ties, where theirs takes the last index",
    "one_image": "theirs ends with a ZeroDivisionError",
    "images_2846": "only that the size of their own test set is fitted in",
    "images_2847": "theirs ends with an UnboundLocalError",
}


def ranks_of(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """One more than the number of wrong answers at or above the best right one."""
    best = np.where(is_right, scores, -np.inf).max(axis=1, keepdims=True)
    return 1 + np.sum(~is_right & (scores >= best), axis=1)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["rand0", "rand3"])
def test_recalls_are_those_of_the_authors_code(name: str) -> None:
    scores_i2t, scores_t2i = ARRAYS[f"{name}/scores_i2t"], ARRAYS[f"{name}/scores_t2i"]
    belongs = ARRAYS[f"{name}/txt2img"][:, None] == np.arange(len(scores_i2t))
    found = recalls(ranks_of(scores_i2t, belongs.T), ranks_of(scores_t2i, belongs))
    for key, value in zip(ARRAYS["key_order"], ARRAYS[f"{name}/result"], strict=True):
        assert found[OUR_NAMES[key]] == pytest.approx(value, abs=1e-9)


@pytest.mark.golden
def test_what_is_left_out_are_ties_and_errors() -> None:
    names = {name.split("/")[0] for name in ARRAYS.files if "/" in name} - {"evaluation"}
    assert names - {"rand0", "rand3"} == set(LEFT)
    assert np.ptp(ARRAYS["all_ties/scores_i2t"]) == 0
    assert ARRAYS["one_image/error"] == "ZeroDivisionError"
    assert ARRAYS["images_2847/outcome"] == "UnboundLocalError"


def test_one_image_is_measured_where_the_authors_code_divides_by_zero() -> None:
    ranks = ranks_of(ARRAYS["one_image/scores_i2t"], np.array([[True]]))
    assert set(recalls(ranks, ranks).values()) == {100.0}


def test_all_ties_score_zero_where_the_authors_code_rewards_the_last_index() -> None:
    scores = ARRAYS["all_ties/scores_i2t"]
    worst = ranks_of(scores, ARRAYS["all_ties/txt2img"][:, None] == np.arange(len(scores)))
    assert recall_at(worst, 1) == 0


def test_keys_are_the_nine_of_a_row() -> None:
    assert list(recalls(np.array([1]), np.array([1]))) == [
        *("i2t_r1", "i2t_r5", "i2t_r10", "i2t_rmean"),
        *("t2i_r1", "t2i_r5", "t2i_r10", "t2i_rmean"),
        "rm",
    ]
