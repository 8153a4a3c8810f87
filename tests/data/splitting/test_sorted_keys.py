"""Keys that a pass has seen are found whether they are still in the set or sorted."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.data.tasks.keys import Keys, SeenKeys, rows_in


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 40), max_size=9), max_size=12),
    latest=st.integers(0, 12),
)
def test_a_key_is_new_exactly_once(batches: list[list[int]], latest: int) -> None:
    ever: set[int] = set()
    seen = SeenKeys(latest)
    for batch in batches:
        fresh = seen.add_new([key_of(number) for number in batch])
        assert fresh == {key_of(number) for number in set(batch) - ever}
        ever.update(batch)


def key_of(number: int) -> bytes:
    """A key whose first eight bytes others have, too."""
    return bytes([number // 4 * 16]) + bytes(11) + bytes([number % 4, 0, 0, 0])


def test_there_are_few_runs() -> None:
    seen = SeenKeys(latest=99)
    for start in range(0, 10_000, 10):
        seen.add_new([digest(number) for number in range(start, start + 10)])
    assert max(map(len, seen._runs)) <= 8
    assert not seen.add_new([digest(number) for number in range(0, 10_000, 7)])


def test_the_first_row_of_a_key_is_found() -> None:
    raw = np.frombuffer(b"".join(map(key_of, [3, 1, 2, 1])), np.uint8).reshape(-1, 16)
    keys, order = Keys(raw), Keys(raw).order()
    ordered = keys.sortable()[order]
    assert order[rows_in(ordered, Keys(raw[[1, 3, 0]]).sortable())].tolist() == [1, 1, 0]
    assert rows_in(ordered, Keys(raw[:1] + 1).sortable()).tolist() == [-1]
    assert rows_in(ordered[:0], keys.sortable()).tolist() == [-1] * 4


def digest(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8), digest_size=16).digest()
