"""Named pipes where a file is expected: nothing waits for somebody to write to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.index import read_index, read_keys
from vlcpctl.evaluation.embedding_cache import EmbeddingCache
from vlcpctl.evaluation.rank_files import SavedRanks
from vlcpctl.files import digests
from vlcpctl.files.parquet_files import read_columns
from vlcpctl.methods.plugins.method_file import load_method_file
from vlcpctl.report.papers import load_paper

pytestmark = pytest.mark.timeout(20)  # what hangs would do so for ever

READERS: dict[str, Callable[[Path], Any]] = {
    "index": read_index,
    "columns of a file": lambda path: read_columns(path, ["key"]),
    "keys of an index": read_keys,
    "ranks": SavedRanks.open,
    "method file": load_method_file,
    "table": lambda path: load_paper(str(path)),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_by_its_name(tmp_path: Path, reader: str) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match=r"pipe\.toml: it is not a regular file"):
        READERS[reader](pipe)


def test_pipes_in_the_cache_of_digests_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_CACHED_FROM", 1)
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", -60)
    (tmp_path / "data").write_text("data")
    digest = digests.cached_digest(tmp_path / "data")
    digests.record("data", "state", {"fact": 1})
    entries = list((tmp_path / "cache" / "vlcpctl" / "verified").iterdir())
    assert len(entries) == 2
    for entry in entries:
        entry.unlink()
        os.mkfifo(entry)
    assert digests.recall("data", "state") is None
    assert digests.cached_digest(tmp_path / "data") == digest
    assert any(entry.is_file() for entry in entries)  # it is remembered again


def test_pipes_in_a_cache_of_embeddings_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, key = EmbeddingCache(tmp_path), {"of": "something"}
    cache.put(key, np.ones((1, 2), np.float32), ["one"], {})
    (entry,) = tmp_path.rglob("*.npy")
    entry.unlink()
    os.mkfifo(entry)
    assert cache.get(key) is None
    assert "computing the embeddings again" in capsys.readouterr().err
    cache.put(key, np.ones((1, 2), np.float32), ["one"], {})
    assert cache.get(key) is not None
