"""Duplicates are found whether the first is still in memory or not."""

from __future__ import annotations

import hashlib
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlcpctl.data.splitting import seen_keys
from vlcpctl.data.splitting.seen_keys import seen_keys as directory_of_keys


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 40), max_size=9), max_size=12),
    most_in_memory=st.integers(0, 12),
)
def test_a_key_is_new_exactly_once(
    tmp_path: Path, batches: list[list[int]], most_in_memory: int
) -> None:
    ever: set[int] = set()
    with patch.object(seen_keys, "_AT_ONCE", 3), directory_of_keys(tmp_path / "seen") as seen:
        seen._most_in_memory = most_in_memory
        for batch in batches:
            fresh = seen.add_new([key_of(number) for number in batch])
            assert fresh == {key_of(number) for number in set(batch) - ever}
            ever.update(batch)
    assert not (tmp_path / "seen").exists()


def key_of(number: int) -> bytes:
    """A key whose first bytes others have, too, with a split or zeros at its end."""
    return (
        bytes([number // 4]) + bytes(11) + bytes([number % 4, 0, 0, 0]) + (b"test" * (number % 2))
    )


def test_there_are_few_runs(tmp_path: Path) -> None:
    with directory_of_keys(tmp_path / "seen") as seen:
        seen._most_in_memory = 9
        for start in range(0, 10_000, 10):
            seen.add_new([digest(number) for number in range(start, start + 10)])
        assert len(seen._runs) <= 11
        assert sum(len(run.first) for run in seen._runs) == 10_000
        assert not seen.add_new([digest(number) for number in range(0, 10_000, 7)])


def digest(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8), digest_size=16).digest()
