"""How many items of a buffer each task gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def proportional(sizes: Sequence[int], total: int, available: Sequence[int]) -> list[int]:
    """Quotas in proportion to the tasks' sizes, by largest remainder, each at most `available`.

    They fill the buffer exactly if they can: what one task lacks goes to the others in proportion.

    >>> proportional([10, 10, 10], 20, [10, 10, 10])
    [7, 7, 6]
    >>> proportional([30, 70], 50, [10, 70])
    [10, 40]
    """
    quotas = [0] * len(sizes)
    while left := min(total, sum(available)) - sum(quotas):
        room = [place for place in range(len(sizes)) if quotas[place] < available[place]]
        given = _largest_remainder([sizes[place] for place in room], left)
        for place, more in zip(room, given, strict=True):
            quotas[place] = min(quotas[place] + more, available[place])
    return quotas


def even(total: int, available: Sequence[int]) -> list[int]:
    """Equal quotas, each at most `available`; the earliest tasks get the remainder.

    >>> even(10, [9, 9, 9]), even(10, [1, 9, 9])
    ([4, 3, 3], [1, 5, 4])
    """
    return proportional([1] * len(available), total, available)


def shares(sizes: Sequence[int], share: float, available: Sequence[int]) -> list[int]:
    """The same share of every task, rounded half up, each at most `available`.

    >>> shares([100, 50], 0.05, [100, 50])
    [5, 3]
    """
    wanted = [math.floor(share * size + 0.5) for size in sizes]
    return [min(one, there) for one, there in zip(wanted, available, strict=True)]


def rounded(sizes: Sequence[int], total: int, available: Sequence[int]) -> list[int]:
    """The CTP authors' quotas: each rounded on its own, halves to the even number.

    The sum may be slightly above or below the size of the buffer.

    >>> rounded([30, 50], 20, [30, 50]), rounded([10, 10, 10], 20, [10, 10, 10])
    ([8, 12], [7, 7, 7])
    """
    seen = sum(sizes)
    wanted = [round(size / seen * total) for size in sizes]
    return [min(one, there) for one, there in zip(wanted, available, strict=True)]


def _largest_remainder(sizes: Sequence[int], total: int) -> list[int]:
    """Whole numbers in proportion to `sizes` that sum to `total`; ties go to the earliest.

    >>> _largest_remainder([30, 50, 20, 45], 20)
    [4, 7, 3, 6]
    """
    # Fractions: with floats, equal remainders of equal tasks could differ in the last bit.
    exact = [Fraction(total * size, sum(sizes)) for size in sizes]
    floors = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda place: floors[place] - exact[place])
    for place in by_remainder[: total - sum(floors)]:
        floors[place] += 1
    return floors
