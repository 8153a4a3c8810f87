"""Input files: errors of reading them name them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from support.program import check_refused, run_program

from vlcpctl.files.digests import file_digest
from vlcpctl.files.hashing import file_sha256
from vlcpctl.files.input_files import open_regular, open_text

MEMORY = Path("/proc/self/mem")  # a regular file whose first bytes cannot be read, as on a bad disk


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    if not MEMORY.is_file():
        pytest.skip("this system has no file that cannot be read")
    path = tmp_path / "failing.tar"
    path.symlink_to(MEMORY)
    return path


def of(opened: Callable[[Path], IO[Any]], method: str, *given: int) -> Callable[[Path], object]:
    """Opens a path, reads by this method, and closes it."""

    def read(path: Path) -> object:
        with opened(path) as file:
            return getattr(file, method)(*given)

    return read


@pytest.mark.parametrize(
    "read",
    [
        of(open_regular, "read"),
        of(open_regular, "readline"),
        of(partial(open_regular, buffering=0), "read"),
        of(partial(open_regular, buffering=0), "read", 9),
        of(open_text, "read"),
        file_digest,
        file_sha256,
    ],
)
def test_an_error_of_reading_names_the_file(failing: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is asserted
        read(failing)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(failing))


def test_the_program_names_the_file(
    failing: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for suffix in (".tar", ".csv", ".jsonl", ".parquet"):
        path = failing.with_name(f"of{suffix}")
        path.symlink_to(failing)
        ended = run_program(capfd, "split", path, "-o", tmp_path / "out", "--by", "source")
        check_refused(ended, "split", 1, f"{path}: Input/output error")
