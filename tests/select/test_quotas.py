"""Quotas: never over the buffer, never over what a task has, in proportion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.select.quotas import even, proportional, shares

SIZES = st.lists(st.integers(1, 500), min_size=1, max_size=9)


@given(SIZES, st.integers(1, 600), st.data())
def test_quotas_use_the_buffer_exactly_as_far_as_items_go(
    sizes: list[int], total: int, data: st.DataObject
) -> None:
    available = [data.draw(st.integers(0, size)) for size in sizes]
    for quotas in (proportional(sizes, total, available), even(total, available)):
        assert sum(quotas) == min(total, sum(available))
        assert all(0 <= quota <= there for quota, there in zip(quotas, available, strict=True))


@given(SIZES, st.integers(1, 600))
def test_full_tasks_get_their_exact_share_up_to_one_item(sizes: list[int], total: int) -> None:
    total = min(total, sum(sizes))
    for size, quota in zip(sizes, proportional(sizes, total, sizes), strict=True):
        assert abs(quota - total * size / sum(sizes)) < 1


def test_equal_tasks_do_not_overfill_where_rounding_does() -> None:
    # Three times seven, each rounded on its own, would be one too many.
    assert proportional([10, 10, 10], 20, [10, 10, 10]) == [7, 7, 6]


def test_published_example_comes_out_as_published() -> None:
    sizes = [30, 50, 20, 45]
    assert proportional(sizes[:2], 20, sizes[:2]) in ([8, 12], [7, 13])
    assert proportional(sizes[:3], 20, sizes[:3]) == [6, 10, 4]
    assert proportional(sizes, 20, sizes) == [4, 7, 3, 6]


def test_what_a_small_task_cannot_fill_goes_to_the_others() -> None:
    assert proportional([50, 50], 40, [5, 50]) == [5, 35]
    assert even(9, [1, 0, 20]) == [1, 0, 8]


def test_shares_are_each_tasks_own() -> None:
    assert shares([100, 10, 9], 0.05, [100, 10, 9]) == [5, 1, 0]
