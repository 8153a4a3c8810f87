"""Inputs: read within limits, or refused in one line that names the file; nothing blocks."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.program import check_refused, run_program

from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.files import inputs
from vlcpctl.files.digests import file_digest, file_sha256
from vlcpctl.files.inputs import (
    OpenFiles,
    lines_of,
    most_open,
    open_regular,
    open_text,
    parse_json,
    read_json_object,
    read_text,
    reading,
)

MEMORY = Path("/proc/self/mem")  # a regular file whose first bytes cannot be read, as on a bad disk
FILES = Path("/proc/self/fd")
X = Path("x")
needs_proc = pytest.mark.skipif(not FILES.is_dir(), reason="needs /proc")


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


def within(path: Path) -> None:
    """Reads as a library does, whose errors name no file."""
    with reading(path), path.open("rb", buffering=0) as file:
        file.read(9)


@pytest.mark.parametrize(
    "read",
    [
        of(open_regular, "read"),
        of(open_regular, "readline"),
        of(partial(open_regular, buffering=0), "read"),
        of(partial(open_regular, buffering=0), "read", 9),
        of(open_text, "read"),
        *(read_text, file_digest, file_sha256, within),
    ],
)
def test_a_failing_disk_is_an_error_of_the_system_that_names_the_file(
    failing: Path, read: Callable[[Path], object]
) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is asserted
        read(failing)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(failing))


def test_the_program_names_a_file_on_a_failing_disk(
    failing: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for suffix in (".tar", ".csv", ".jsonl", ".parquet"):
        path = failing.with_name(f"of{suffix}")
        path.symlink_to(failing)
        ended = run_program(capfd, "split", path, "-o", tmp_path / "out", "--by", "source")
        check_refused(ended, "split", 1, f"{path}: Input/output error")


@pytest.mark.parametrize("error", [OSError("short"), ValueError("short"), OverflowError("short")])
def test_what_a_library_raises_is_one_line(error: Exception) -> None:
    with pytest.raises(Incompatible, match="cannot read x: short"), reading(X, error=Incompatible):
        raise error
    with pytest.raises(BadInput, match="x, row 3: short"), reading(X, "x, row 3"):
        raise error


MISTAKES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a directory": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "no UTF-8": lambda path: path.write_bytes(b"{\xff}"),
    "nested": lambda path: path.write_bytes(b"[" * 99999),
    "too large": lambda path: path.write_bytes(b"{}" + b" " * 200_000),
    "a list": lambda path: path.write_bytes(b"[]"),
}


@pytest.mark.parametrize("make", MISTAKES.values(), ids=MISTAKES)
def test_a_file_that_is_not_an_object_is_named(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    path = tmp_path / "x.json"
    make(path)
    with pytest.raises(BadInput, match=str(path)):
        read_json_object(path, most_bytes=100_000)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner | st.text()) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(VALUES, st.booleans())
def test_what_json_dumps_writes_reads_back(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text) == parse_json(text.encode()) == value


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_value_that_can_be_written_or_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        json.dumps(parse_json(data), ensure_ascii=False).encode()


def test_half_of_a_pair_and_depth_are_refused() -> None:
    for text in ('"\\ud800"', '{"\\udfff": 1}', '{"a":' * 99999):
        with pytest.raises(ValueError, match=r"half of a surrogate|nested"):
            parse_json(text)
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_lines_come_from_files_and_never_from_what_may_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"1\n\n2")
    assert list(lines_of(str(tmp_path / "a"), "a")) == ["1\n", "\n", "2"]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "no UTF-8").write_bytes(b"a\n\xff")
    (tmp_path / "long").write_bytes(b"a" * (1 << 20) + b"a")
    for name in ("no UTF-8", "long", "missing", "", "a\0"):
        with pytest.raises(BadInput, match="shown"):
            list(lines_of(str(tmp_path / name), "shown"))
    for name in ("pipe", "/dev/zero"):
        with pytest.raises(BadInput, match="shown: it is not a regular file"):
            list(lines_of(str(tmp_path / name), "shown"))
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadInput, match="closed"):
        list(lines_of("-", "<stdin>"))
    here, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(UsageError, match="terminal"):
            list(lines_of("-", "<stdin>"))
    os.close(here)


def _paths(directory: Path, count: int) -> list[Path]:
    paths = [directory / f"{number}.tar" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%d" % number)
    return paths


def _open_below(directory: Path) -> list[str]:
    found = (Path(os.path.realpath(one)) for one in FILES.iterdir())
    return sorted(one.name for one in found if one.parent == directory)


@needs_proc
def test_a_bounded_number_of_files_is_open_and_closed_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "most_open", lambda: 3)
    paths = _paths(tmp_path, 8)
    owners = [OpenFiles(paths[:4]), OpenFiles(paths[4:])]
    for place in [*range(8), *range(8)]:
        descriptor = owners[place // 4].descriptor(place % 4)
        assert os.pread(descriptor, 9, 0) == b"%d" % place
        assert owners[place // 4].descriptor(place % 4) == descriptor  # it stays open
        assert len(_open_below(tmp_path)) <= 3
    copied = pickle.loads(pickle.dumps(owners.pop()))
    assert _open_below(tmp_path) == []
    assert os.pread(copied.descriptor(0), 9, 0) == b"4"


@pytest.mark.parametrize(
    ("soft", "most"),
    [(4, 2), (20, 5), (256, 64), (1024, 256), (10**6, 1024), (resource.RLIM_INFINITY, 1024)],
)
def test_the_bound_leaves_most_files_to_others(
    soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert most_open() == most
