"""Files that stay open between reads: as many as a process may have, and no longer than needed."""

from __future__ import annotations

import os
import pickle
import resource
from pathlib import Path

import pytest

from vlcpctl.files import open_files
from vlcpctl.files.open_files import OpenFiles, most_open

FILES = Path("/proc/self/fd")
needs_proc = pytest.mark.skipif(not FILES.is_dir(), reason="needs /proc")


def _paths(directory: Path, count: int) -> list[Path]:
    paths = [directory / f"{number}.tar" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%d" % number)
    return paths


def _open_below(directory: Path) -> list[str]:
    found = (Path(os.path.realpath(one)) for one in FILES.iterdir())
    return sorted(one.name for one in found if one.parent == directory)


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(open_files, "most_open", lambda: 3)
    return 3


@needs_proc
def test_a_bounded_number_of_files_is_open_for_any_number_of_owners(
    tmp_path: Path, most: int
) -> None:
    paths = _paths(tmp_path, 8)
    owners = [OpenFiles(paths[:4]), OpenFiles(paths[4:])]
    for turn in range(3):
        for place in range(8):
            descriptor = owners[place // 4].descriptor(place % 4)
            assert os.pread(descriptor, 9, 0) == b"%d" % place, turn
            assert len(_open_below(tmp_path)) <= most


@needs_proc
def test_a_file_stays_open_between_reads_and_is_closed_with_its_owner(tmp_path: Path) -> None:
    paths = _paths(tmp_path, 2)
    one, other = OpenFiles(paths), OpenFiles(paths)
    assert one.descriptor(0) == one.descriptor(0)
    assert one.descriptor(0) != other.descriptor(0)
    one.descriptor(1)
    assert _open_below(tmp_path) == ["0.tar", "0.tar", "1.tar"]
    del one
    assert _open_below(tmp_path) == ["0.tar"]
    assert os.pread(other.descriptor(0), 9, 0) == b"0"


@needs_proc
def test_a_forked_process_opens_its_own(tmp_path: Path) -> None:
    files = OpenFiles(_paths(tmp_path, 1))
    files.descriptor(0)
    child = os.fork()
    if not child:
        before = _open_below(tmp_path)
        is_read = os.pread(files.descriptor(0), 9, 0) == b"0"
        os._exit(0 if before == [] and is_read else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.pread(files.descriptor(0), 9, 0) == b"0"


@needs_proc
def test_a_pickled_copy_has_the_paths_and_nothing_open(tmp_path: Path) -> None:
    files = OpenFiles(_paths(tmp_path, 1))
    files.descriptor(0)
    copied = pickle.loads(pickle.dumps(files))
    assert copied.paths == files.paths
    assert _open_below(tmp_path) == ["0.tar"]
    assert os.pread(copied.descriptor(0), 9, 0) == b"0"


@pytest.mark.parametrize(
    ("soft", "most"),
    [(4, 2), (20, 5), (256, 64), (1024, 256), (10**6, 1024), (resource.RLIM_INFINITY, 1024)],
)
def test_the_bound_leaves_most_files_to_others(
    soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    assert most_open() == most
