"""Of two processes with one output, one writes it: the other ends with exit 4, or waits."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import exit_code_of, run_line, start_child, wait_until
from support.program import check_refused, run_program
from support.writers import NO_FORCE, SOME_WRITERS, WRITERS, lines

from vlcpctl.core.errors import OutputExists
from vlcpctl.files import locks
from vlcpctl.files.outputs import Output

each_writer = pytest.mark.parametrize("writer", SOME_WRITERS)


@contextmanager
def writer_of(out: Path, seconds: float = 100, part: str = "") -> Iterator[int]:
    """A process that holds the lock of an output, or of a part of it; its id."""
    begun = out.with_name(f"{out.name}-is-locked")

    def hold(_rank: int) -> None:
        with Output(out).locked(part):
            begun.touch()
            time.sleep(seconds)

    pid = start_child(hold)
    try:
        wait_until(begun.exists)
        begun.unlink()
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def race(place: Path, *command_lines: list[object]) -> list[int]:
    """The exit codes of command lines that start at the same moment, and their logs in `place`."""
    pids = [
        start_child(lambda rank: run_line(command_lines[rank], place / f"log-{rank}"), rank)
        for rank in range(len(command_lines))
    ]
    return [exit_code_of(pid) for pid in pids]


def logs(place: Path) -> str:
    """What all command lines of a race printed to stderr."""
    return "".join(path.read_text() for path in sorted(place.glob("log-*.err")))


def assert_clean(directory: Path, out: Path) -> None:
    """Nothing but the output is left."""
    left = {path.name for path in directory.iterdir() if not path.name.startswith("log-")}
    assert left == {out.name}


@each_writer
def test_a_second_writer_ends_with_exit_4_and_names_the_first(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str
) -> None:
    words = lines(place)[writer]
    with writer_of(tmp_path / "out") as pid:
        for force in ([], [] if writer in NO_FORCE else ["--force"]):
            ended = run_program(capfd, *words, tmp_path / "out", *force)
            says = f"{tmp_path / 'out'} is being written by process {pid} on host "
            check_refused(ended, str(words[0]), 4, says, "; wait for it, or use --wait")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("writer", WRITERS[::6])
def test_with_wait_it_starts_when_the_first_has_ended(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str
) -> None:
    words = lines(place)[writer]
    with writer_of(tmp_path / "out", 0.6):
        ended = run_program(capfd, *words, tmp_path / "out", "--wait")
    assert ended.code == 0, ended.err
    assert_clean(tmp_path, tmp_path / "out")


def test_wait_ends_after_its_seconds(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*lines(place)["sample"], tmp_path / "out"]
    with writer_of(tmp_path / "out"):
        check_refused(
            run_program(capfd, *words, "--wait", 0.5),
            "sample",
            4,
            "(waited 0.5 s); give --wait more seconds",
        )


def test_what_only_reads_or_plans_does_not_lock(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*lines(place)["buffer"], tmp_path / "out"]
    assert run_program(capfd, *words).code == 0
    with writer_of(tmp_path / "out"):
        assert run_program(capfd, "check", tmp_path / "out").code == 0
        assert run_program(capfd, "inspect", tmp_path / "out").code == 0
        assert run_program(capfd, *words, "--dry-run").code == 0


@pytest.mark.parametrize("spawned", [False, True])
def test_a_killed_writers_child_does_not_keep_the_lock(tmp_path: Path, spawned: bool) -> None:
    """As workers that load data, which outlive a killed parent for seconds."""
    out = tmp_path / "out"

    def act(_rank: int) -> None:
        with Output(out).locked():
            pid = os.fork() if not spawned else subprocess.Popen(["sleep", "100"]).pid
            if pid == 0:
                time.sleep(100)
            (tmp_path / "child.part").write_text(str(pid))
            (tmp_path / "child.part").rename(tmp_path / "child")
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_code_of(start_child(act)) == -signal.SIGKILL
    child = int((tmp_path / "child").read_text())
    try:
        with Output(out).locked(wait_s=5):  # a fork needs a moment to close the descriptor
            os.kill(child, 0)  # is alive
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_of_a_file_that_was_removed_meanwhile_is_none(tmp_path: Path) -> None:
    """The last holder removes the file that others are waiting to lock."""
    opened: list[int] = []

    def open_file() -> int:
        opened.append(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT))
        if len(opened) == 1:
            (tmp_path / "lock").unlink()
        return opened[-1]

    lock = locks.acquire(tmp_path / "lock", open_file, output=tmp_path / "out")
    assert len(opened) == 2
    lock.release()


def test_a_part_that_ends_leaves_the_lock_to_the_others(tmp_path: Path) -> None:
    output = Output(tmp_path / "out")
    with writer_of(tmp_path / "out", part="0-of-2"):
        with output.locked("1-of-2"):
            pass
        assert output.is_ours()
        with pytest.raises(OutputExists, match="is being written"):
            output.locked().__enter__()


def test_a_process_can_lock_again_what_it_has_locked(tmp_path: Path) -> None:
    output = Output(tmp_path / "out")
    with output.locked(), Output(tmp_path / "." / "out").locked():
        assert output.is_ours()
    assert list(tmp_path.iterdir()) == []


def test_two_equal_train_steps_do_not_mix(place: Path, tmp_path: Path) -> None:
    words = [*lines(place)["train-step"], tmp_path / "out"]
    # One of them may start so late that it finds the other's result.
    assert sorted(race(tmp_path, words, words)) in ([0, 4], [0, 0])
    assert "Traceback" not in logs(tmp_path)
    steps = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert len(steps) == 3
    assert_clean(tmp_path, tmp_path / "out")


def test_two_evaluations_lose_no_rows(place: Path, tmp_path: Path) -> None:
    """The second waits, and then refuses to replace the rows of the first."""
    words = [*lines(place)["eval-retrieval"], tmp_path / "out", "--wait"]
    codes = race(tmp_path, words, [*words, "--limit", 3])
    assert sorted(codes) == [0, 4]
    assert "contains other rows" in logs(tmp_path)


def test_parts_of_one_output_lock_their_own_part(place: Path, tmp_path: Path) -> None:
    words = [*lines(place)["distill"], tmp_path / "out", "--num-shards", 2, "--wait"]
    assert race(tmp_path, *([*words, "--shard-index", index] for index in (0, 1))) == [0, 0]
    assert_clean(tmp_path, tmp_path / "out")


def test_a_part_and_the_whole_exclude_what_they_must(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*lines(place)["distill"], tmp_path / "out"]
    part = ["--num-shards", 2, "--shard-index", 0]
    for held, more in (("", part), ("0-of-2", []), ("0-of-2", part)):
        with writer_of(tmp_path / "out", part=held):
            assert run_program(capfd, *words, *more).code == 4
    # All parts are there then, and joining them waits for the other shard.
    with writer_of(tmp_path / "out", 3, "1-of-2"):
        assert run_program(capfd, *words, *part).code == 0
    assert run_program(capfd, *words).code == 0
    assert_clean(tmp_path, tmp_path / "out")


def test_a_writer_says_who_it_is_in_the_file_it_locks(tmp_path: Path) -> None:
    """A file without it, as after a kill or on a full disk, costs only the words."""
    output = Output(tmp_path / "out")
    with writer_of(tmp_path / "out"):
        output.lock.write_bytes(b"\xff\x00{" + b"[" * 100_000)
        with pytest.raises(OutputExists, match=r"out is being written by another process"):
            output.locked().__enter__()
        output.lock.write_text('{"pid": "\\u001b[31m", "host": "x", "since": 1}')
        with pytest.raises(OutputExists, match=r"process \\x1b\[31m on host x, started at 1"):
            output.locked().__enter__()
