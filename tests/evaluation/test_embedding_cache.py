"""A file of the cache of embeddings: by safetensors, with equal bytes, aligned, of the umask."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from vlcpctl.core.errors import BadInput
from vlcpctl.evaluation.embedding_cache import (
    SCHEMA,
    Cached,
    EmbeddingCache,
    is_cache_file,
    samples_of,
)

VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)
KEY = {"of": "something", "number": 1}


def stored(directory: Path, samples: int = 2) -> Path:
    cache = EmbeddingCache(directory)
    cache.put(KEY, Cached(VECTORS, [f"key {n}" for n in range(samples)], {"b": 1, "a": [2]}))
    (path,) = directory.rglob("*.safetensors")
    return path


def test_it_is_safetensors_with_one_entry_of_metadata_and_equal_bytes(tmp_path: Path) -> None:
    one, other = stored(tmp_path / "one"), stored(tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()
    with safe_open(one, "numpy") as file:
        assert list(file.metadata()) == [SCHEMA]
        assert np.array_equal(file.get_tensor("embeddings"), VECTORS)
    assert is_cache_file(one.read_bytes()[:4096])
    assert samples_of(one) == {"key 0", "key 1"}


@pytest.mark.parametrize("samples", range(1, 9))
def test_mapped_embeddings_are_aligned_whatever_the_header(tmp_path: Path, samples: int) -> None:
    stored(tmp_path, 10**samples if samples < 4 else samples)
    found = EmbeddingCache(tmp_path).get(KEY)
    assert found is not None
    assert found.embeddings.ctypes.data % 64 == 0
    assert np.array_equal(found.embeddings, VECTORS)
    assert found.facts == {"b": 1, "a": [2]}


def test_its_modes_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = stored(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    path = stored(tmp_path)
    left, being_written = (path.with_name(f".{path.name}.tmp-{n}") for n in (1, 2))
    for one, age in ((left, 7200), (being_written, 60)):
        one.write_bytes(b"half")
        os.utime(one, times=(time.time() - age,) * 2)
    EmbeddingCache(tmp_path)
    assert sorted(path.parent.iterdir()) == sorted([path, being_written])


def test_a_file_of_another_schema_is_recognised_and_is_to_be_deleted(tmp_path: Path) -> None:
    path = stored(tmp_path)
    path.write_bytes(path.read_bytes().replace(SCHEMA.encode(), b"vlcpctl.embedding-cache/1"))
    assert is_cache_file(path.read_bytes()[:4096])
    with pytest.raises(BadInput, match="not a file of cached embeddings; delete it"):
        samples_of(path)
    assert EmbeddingCache(tmp_path).get(KEY) is None
