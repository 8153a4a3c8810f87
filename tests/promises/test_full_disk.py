"""Full or read-only disks and limits: one line, the old output untouched, nothing half-written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.marks import mostly_slow
from support.program import run_program
from support.writers import lines

SIZE = 4 * 2**20
WRITERS = ["split", "buffer", "train-step", "eval-retrieval", "forgetting-report", "export"]
each_writer = pytest.mark.parametrize("command", mostly_slow(WRITERS, kept=["split", "train-step"]))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.system(f"mount -t tmpfs -o size={SIZE} tmpfs '{path}'"):
        pytest.skip("no disk can be mounted here")
    yield path
    subprocess.run(["umount", path], check=True)


def command_line(command: str, place: Path, out: Path) -> list[object]:
    """The command with `out` as its output."""
    task = place / "stream" / "01-part-1"
    if command == "buffer":  # tars of another disk are copied instead of linked
        how = ("--previous", place / "buffer", "--policy", "ring", "--size", 6, "-q")
        return ["buffer", task, *how, "-o", out]
    saves = ["--save-every", 1] if command == "train-step" else []
    return [*lines(place)[command], out, *saves]


def files(disk: Path) -> dict[str, bytes]:
    """Everything on the disk except the state from which a train-step resumes."""
    staging = disk / ".out.vlcpctl"
    found = (
        path
        for path in disk.rglob("*")
        if staging not in (path, *path.parents) or staging / "replaced/out" in path.parents
    )
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves `leave` bytes of the disk free."""
    path = disk / "filler"
    path.unlink(missing_ok=True)
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    path.write_bytes(bytes(max(0, free - leave)))
    return path


@each_writer
def test_a_full_disk_keeps_the_old_output_and_a_rerun_succeeds(
    place: Path, disk: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    words = command_line(command, place, disk / "out")
    assert run_program(capfd, *words).code == 0
    again = [*words, "--force"]
    if command in {"split", "train-step"}:
        again += ["--seed", 1]
    failed = 0
    for leave in (0, *(int(8192 * 1.5**power) for power in range(14))):
        filler = fill(disk, leave)
        before = files(disk)
        ended = run_program(capfd, *again)
        if ended.code == 0:
            break
        failed += 1
        *warnings, line = ended.err.splitlines()
        assert all(one.startswith("warning: --previous ") for one in warnings)
        assert line.startswith(f"vlcpctl {command}: ")
        assert f"{disk}/" in line
        assert "No space left on device" in line or "disk is full" in line
        assert (ended.code, ended.out) == (1, "")
        assert files(disk) == before
        filler.unlink()
    assert failed
    assert (disk / "out").exists()
    assert (disk / ".out.vlcpctl/replaced/out").exists()


@each_writer
def test_a_read_only_disk_gives_a_one_line_error(
    place: Path, disk: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    ended = run_program(capfd, *command_line(command, place, disk / "out"))
    (line,) = ended.err.splitlines()
    assert line.startswith(f"vlcpctl {command}: {disk}/")
    assert line.endswith("Read-only file system")
    assert (ended.code, ended.out) == (1, "")


LIMITS = {
    "files": (resource.RLIMIT_NOFILE, 12),
    "bytes of a file": (resource.RLIMIT_FSIZE, 20_000),
    "memory": (resource.RLIMIT_AS, 1_200_000_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["sample", *WRITERS])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_one_line(place: Path, tmp_path: Path, writer: str, limit: str) -> None:
    number, most = LIMITS[limit]
    words = [*lines(place)[writer], tmp_path / "out"]
    ended = subprocess.run(
        [sys.executable, "-m", "vlcpctl", *map(str, words)],
        preexec_fn=lambda: resource.setrlimit(number, (most, most)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode in {0, 1}, ended.stderr
    assert not any(word in ended.stderr for word in ("Traceback", "Exception ignored", "Fatal"))
