"""The cache of embeddings: what is stored is found, aligned; what killed processes left goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vlcpctl.evaluation.embedding_cache import EmbeddingCache, prune, samples_of
from vlcpctl.files.outputs import Output

VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)
KEY = {"of": "something", "number": 1, "checkpoint": "a"}


def stored(directory: Path, key: dict[str, object] = KEY) -> Path:
    cache = EmbeddingCache(directory)
    before = set(directory.glob("*/*"))
    cache.put(key, VECTORS, ["key 0", "key 1"], {"b": 1, "a": [2]})
    (entry,) = {*directory.glob("*/*")} - before
    return entry


def test_what_is_stored_is_found_mapped_and_aligned(tmp_path: Path) -> None:
    entry = stored(tmp_path)
    found = EmbeddingCache(tmp_path).get(KEY)
    assert found is not None
    vectors, facts = found
    assert isinstance(vectors, np.memmap)
    # Products of vectors at other addresses may differ in the last bits.
    assert vectors.ctypes.data % 64 == 0
    assert np.array_equal(vectors, VECTORS)
    assert facts == {"b": 1, "a": [2]}
    assert samples_of(entry) == ["key 0", "key 1"]
    assert EmbeddingCache(tmp_path).get({**KEY, "number": 2}) is None


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    entry = stored(tmp_path)
    hidden = Output(entry)
    hidden.hidden.mkdir()
    hidden.lock.touch()
    (hidden.hidden / "writing-host-1").mkdir()
    EmbeddingCache(tmp_path)
    assert list(entry.parent.iterdir()) == [entry]


def test_entries_of_other_checkpoints_and_damaged_ones_are_pruned(tmp_path: Path) -> None:
    kept, other, damaged = (stored(tmp_path, {**KEY, "checkpoint": name}) for name in "abc")
    (damaged / "cached.json").write_text("{")
    prune(tmp_path, {"a", "c"})
    assert {*tmp_path.glob("*/*")} == {kept}
    assert not other.exists()
