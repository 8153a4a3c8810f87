"""The reading order is a permutation, the same however it is asked for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.data.loading.order import Order


@given(rows=st.integers(1, 300), block=st.integers(1, 40), window=st.integers(1, 5))
def test_every_row_comes_once(rows: int, block: int, window: int) -> None:
    order = Order(rows, seed=0, name="x", block=block, window=window)
    assert sorted(order.rows(0, 0, rows).tolist()) == list(range(rows))


def test_any_place_is_the_same_alone_and_in_sequence() -> None:
    order = Order(100, seed=0, name="x", block=8, window=3)
    whole = order.rows(1, 0, 100)
    fresh = Order(100, seed=0, name="x", block=8, window=3)
    assert [fresh.row(1, place) for place in reversed(range(100))] == whole[::-1].tolist()
    np.testing.assert_array_equal(fresh.rows(1, 37, 61), whole[37:61])


@pytest.mark.parametrize("other", [{"seed": 1}, {"name": "y"}])
def test_seed_and_name_change_the_order(other: dict[str, object]) -> None:
    same = {"seed": 0, "name": "x"}
    one = Order(50, **same).rows(0, 0, 50)  # type: ignore[arg-type]
    assert not np.array_equal(one, Order(50, **{**same, **other}).rows(0, 0, 50))  # type: ignore[arg-type]
    assert not np.array_equal(one, Order(50, **same).rows(1, 0, 50))  # type: ignore[arg-type]


def test_a_window_reads_only_its_own_blocks() -> None:
    order = Order(1000, seed=0, name="x", block=10, window=4)
    blocks = {row // 10 for row in order.rows(0, 0, 40).tolist()}
    assert len(blocks) == 4


def test_a_small_task_is_one_plain_permutation() -> None:
    row = Order(5000, seed=0, name="x").rows(0, 0, 5000)
    assert len({place // 500 for place in np.flatnonzero(row < 4096)}) == 10


def test_an_order_goes_to_another_process_without_its_rows() -> None:
    order = Order(10_000_000, seed=0, name="x")
    rows = order.rows(3, 9_000_000, 9_000_064)
    sent = pickle.dumps(order)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent).rows(3, 9_000_000, 9_000_064), rows)


def test_no_rows_have_no_order() -> None:
    assert Order(0, seed=0, name="x").rows(0, 0, 0).tolist() == []
