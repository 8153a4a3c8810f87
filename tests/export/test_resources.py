"""What an export holds: little memory while it writes, and no open file after an error."""

from __future__ import annotations

import errno
import gc
import os
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from support.program import check_refused, run_program

from vlcpctl.export.clip_benchmark import write_tars
from vlcpctl.export.pairs import Selection
from vlcpctl.testing.tiny_stream import make_task

FILES = Path("/proc/self/fd")


@pytest.fixture
def memory() -> Iterator[None]:
    """Counts the memory of Python's objects."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def kilobytes() -> float:
    return tracemalloc.get_traced_memory()[0] / 1000


@pytest.mark.skipif(not FILES.is_dir(), reason="needs /proc")
@pytest.mark.parametrize("to", ["clip-benchmark", "hf"])
def test_no_file_is_open_after_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """Nor while the error exists: a full disk could not be unmounted."""
    task, pairs = make_task(tmp_path / "task", 4), Selection.pairs

    def failing(selection: Selection) -> Any:
        yield from islice(pairs(selection), 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Selection, "pairs", failing)
    gc.disable()
    try:
        ended = run_program(capfd, "export", task, "--to", to, "-o", tmp_path / "out", "-q")
        links = [os.path.realpath(one) for one in FILES.iterdir()]
    finally:
        gc.enable()
    check_refused(ended, "export", 1, "No space left on device")
    ours = [one for one in links if one.startswith(os.path.realpath(tmp_path))]
    assert [one for one in ours if "writing-" in one] == []


def test_members_that_were_written_take_no_memory(tmp_path: Path, memory: None) -> None:
    before = kilobytes()
    samples = ({"png": b"x", "txt": b"y"} for _ in range(300))
    assert write_tars(tmp_path / "test", samples, 10**9) == 1
    assert tracemalloc.get_traced_memory()[1] / 1000 - before < 300
