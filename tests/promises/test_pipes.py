"""Named pipes where a file is expected: nothing waits for somebody to write to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.index import read_index, read_keys
from vlcpctl.evaluation.rank_files import SavedRanks
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
