"""The hash order and reservoirs: uniform, and the same in whatever parts the data come."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.select.order import hash_order, lowest
from vlcpctl.select.reservoir import fixed_count

KEYS = [f"{number:032x}" for number in range(60)]


def test_every_key_is_kept_equally_often_over_seeds() -> None:
    seeds, count = 400, 12
    kept = sum(fixed_count(hash_order(seed, KEYS), count).astype(int) for seed in range(seeds))
    expected = seeds * count / len(KEYS)
    # The counts have variance n p (1 - p) and a fixed sum: chi-square with 59 degrees of freedom.
    chi_square = ((kept - expected) ** 2).sum() / (expected * (1 - count / len(KEYS)))
    chi_square *= (len(KEYS) - 1) / len(KEYS)
    degrees = len(KEYS) - 1
    assert abs(chi_square - degrees) < 4 * math.sqrt(2 * degrees)


@given(st.permutations(range(30)), st.integers(1, 40), st.lists(st.integers(1, 29), max_size=3))
def test_parts_in_any_order_keep_what_one_pass_keeps(
    permutation: list[int], count: int, cuts: list[int]
) -> None:
    order = hash_order(0, KEYS[:30])
    held = np.empty(0, dtype=np.int64)
    for part in np.split(np.array(permutation), sorted(cuts)):
        held = np.concatenate([held, part])
        held = held[fixed_count(order[held], count)]
    assert sorted(held) == sorted(np.flatnonzero(fixed_count(order, count)))


def test_count_beyond_the_data_keeps_everything() -> None:
    assert fixed_count(np.array([0.2, 0.1]), 5).all()
    assert lowest(np.array([0.2, 0.1]), 5).tolist() == [1, 0]
