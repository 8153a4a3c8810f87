"""Files of ranks are read back as they were written, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.rank_files import write_ranks

from vlcpctl.core.errors import BadInput
from vlcpctl.evaluation.rank_files import SavedRanks

I2T = {"a": [1], "b": [3], "c": [11]}
T2I = {"a": [2, 1], "b": [5], "c": [7]}


def _write(path: Path, **fields: object) -> Path:
    return write_ranks(path, {"i2t": I2T, "t2i": T2I}, **fields)


def test_ranks_are_read_by_gallery_and_direction(tmp_path: Path) -> None:
    file = SavedRanks.open(_write(tmp_path / "r"))
    (found,) = file.read({("c0", "d")})
    assert (found.checkpoint, found.data, found.split) == ("c0", "d", "test")
    np.testing.assert_array_equal(found.ways["i2t"].rank, [1, 3, 11])
    assert found.ways["t2i"].keys.to_pylist() == ["a", "a", "b", "c"]
    np.testing.assert_array_equal(found.ways["t2i"].captions, [0, 1, 0, 0])
    np.testing.assert_array_equal(found.ways["t2i"].rank, [2, 1, 5, 7])


def test_only_the_places_that_are_wanted_are_read(tmp_path: Path) -> None:
    for wanted in ({("other", "d")}, {("c0", "other")}, set()):
        assert SavedRanks.open(_write(tmp_path / "r")).read(wanted) == []


def test_merged_galleries_are_left_out(tmp_path: Path) -> None:
    assert SavedRanks.open(_write(tmp_path / "r", gallery="merged")).read({("c0", "d")}) == []


def test_queries_given_twice_count_once(tmp_path: Path) -> None:
    """Two directories with one content have the same queries, and the same ranks."""
    path = write_ranks(tmp_path / "r", {"i2t": I2T, "t2i": T2I}, times=2)
    (found,) = SavedRanks.open(path).read({("c0", "d")})
    np.testing.assert_array_equal(found.ways["i2t"].rank, [1, 3, 11])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda it: it[:100] + bytes([it[100] ^ 1]) + it[101:], "has changed since it was written"),
        (lambda it: it[:-9], "is not a file of ranks"),
        (lambda it: b"", "is not a file of ranks"),
        (lambda it: b"PAR1 nothing PAR1", "is not a file of ranks"),
        (lambda it: b"{}", "is not a file of ranks"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    path = _write(tmp_path / "r")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BadInput, match=said) as caught:
        SavedRanks.open(path)
    assert "\n" not in str(caught.value)


def test_a_query_without_a_rank_is_refused(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "r", {"i2t": {"a": [0]}, "t2i": T2I})
    with pytest.raises(BadInput, match="has a query without a rank"):
        SavedRanks.open(path).read({("c0", "d")})


def test_a_file_without_a_digest_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "r")
    table = pq.read_table(path)
    metadata = {b"vlcpctl.ranks": b'{"schema": "vlcpctl.ranks/1", "identity": {}}'}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(BadInput, match="has no valid size and xxh3_128 on record; write it again"):
        SavedRanks.open(path)
