"""Duplicates are found whether the first is still in memory or not."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlcpctl.data.splitting.scratch_tables import SeenKeys, scratch_table


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 40), max_size=9), max_size=12),
    most_in_memory=st.integers(0, 12),
)
def test_a_key_is_new_exactly_once(
    tmp_path: Path, batches: list[list[int]], most_in_memory: int
) -> None:
    ever: set[int] = set()
    with scratch_table(tmp_path / "seen.sqlite", SeenKeys.COLUMNS) as table:
        seen = SeenKeys(table, most_in_memory)
        for batch in batches:
            fresh = seen.add_new([bytes([number]) * 16 for number in batch])
            assert fresh == {bytes([number]) * 16 for number in set(batch) - ever}
            ever.update(batch)
    assert not (tmp_path / "seen.sqlite").exists()
