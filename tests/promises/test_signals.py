"""Signals and streams: the documented exit code, at most one line, nothing half-written."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
from support.marks import mostly_slow
from support.processes import exit_code_of, run_line, start_child
from support.writers import lines

from vlcpctl.training.state import ResumeDirectory

SAMPLE = ["sample", "emoji9", "--limit", "30", "--views", "2", "--size", "16", "-q", "-o", "out"]
each_signal = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
# The program, which sends itself a signal when it imports its N-th module: in the middle of the
# start-up, or of the work.
AT_IMPORT = """
import os, sys
from vlcpctl import __main__ as program

moment, number, times = map(int, sys.argv[1:4])
sys.argv = ["vlcpctl", *sys.argv[4:]]
open_streams = program._open_closed_streams

class Finder:
    count = 0
    def find_spec(self, name, path=None, target=None):
        self.count += 1
        if self.count == moment:
            for _ in range(times):
                os.kill(os.getpid(), number)

def start():
    open_streams()
    sys.meta_path.insert(0, Finder())

program._open_closed_streams = start
program.main()
"""


def run(directory: Path, *words: object, **how: object) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own that works in a directory."""
    command = [sys.executable, *map(str, words)]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.run(command, text=True, check=False, cwd=directory, timeout=120, **given)  # type: ignore[call-overload]


def at_import(directory: Path, moment: int, number: int, times: int = 1) -> int:
    """The exit code of the program with a signal at its N-th import; 0 if there are fewer."""
    ended = run(directory, "-c", AT_IMPORT, moment, number, times, *SAMPLE)
    assert ended.stderr == ""
    left = [path.name for path in directory.iterdir()]
    if ended.returncode == 0:
        assert (ended.stdout, left) == ("out\n", ["out"])
        (directory / "out").unlink()
    else:
        assert (ended.returncode, ended.stdout, left) == (128 + number, "", [])
    return ended.returncode


@each_signal
def test_a_signal_while_modules_are_imported(tmp_path: Path, number: signal.Signals) -> None:
    codes = [at_import(tmp_path, moment, number) for moment in (1, 60, 150, 250)]
    assert codes == [128 + number] * 4


@pytest.mark.slow
@each_signal
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_at_every_moment(tmp_path: Path, number: signal.Signals, times: int) -> None:
    moment = 1
    while at_import(tmp_path, moment, number, times):
        moment += 13
    assert moment > 250


@pytest.mark.slow
@pytest.mark.parametrize(
    "writer", ["split", "buffer", "distill", "eval-retrieval", "train-step", "export"]
)
def test_signals_and_kills_at_random_times_leave_nothing(
    place: Path, tmp_path: Path, writer: str
) -> None:
    draw, words = random.Random(0), ["-m", "vlcpctl", *lines(place)[writer], "out"]
    for number in 3 * [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        time.sleep(0.2 + draw.uniform(0, 8))
        for _ in range(draw.choice([1, 2])):
            process.send_signal(number)
        error = process.communicate()[1]
        assert process.returncode in {0, 75, 128 + number, -number}
        assert len(error.splitlines()) <= 1
        if process.returncode not in {75, -signal.SIGKILL}:
            assert {path.name for path in tmp_path.iterdir()} <= {"out"}
    assert run(tmp_path, *words).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nohup_is_respected(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + AT_IMPORT
    ended = run(tmp_path, "-c", code, 150, int(signal.SIGHUP), 1, *SAMPLE)
    assert (ended.returncode, ended.stdout) == (0, "out\n")


def test_a_second_signal_while_saving_keeps_the_older_state(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*lines(place)["train-step"], tmp_path / "out", "--save-every", 1]
    write, written = safetensors.torch.save_file, []

    def write_and_be_signalled(*given: object) -> None:
        written.append(given[1])
        write(*given)  # type: ignore[arg-type]
        if len(written) > 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", write_and_be_signalled)
        pid = start_child(lambda _: run_line(words, tmp_path / "log"))
        assert exit_code_of(pid) == 128 + signal.SIGTERM
    assert (tmp_path / "log.err").read_text() == ""
    assert not (tmp_path / "out").exists()
    saved, _ = ResumeDirectory(tmp_path / "out").load() or (None, {})
    assert saved is not None
    assert saved.step == 2
    assert exit_code_of(start_child(lambda _: run_line(words, tmp_path / "log"))) == 0
    assert (tmp_path / "log.err").read_text().startswith("")
    assert not (tmp_path / ".out.vlcpctl").exists()


@pytest.mark.parametrize(
    "closed",
    mostly_slow([">&-", "<&-", "<&- >&-", "2>&-", "<&- >&- 2>&-"], kept=["<&- >&- 2>&-"]),
)
def test_streams_closed_at_the_start_are_like_dev_null(tmp_path: Path, closed: str) -> None:
    for words in (" ".join(SAMPLE), "methods ctp", "-h", "--version"):
        shell = ["/bin/sh", "-c", f"exec {shlex.quote(sys.executable)} -m vlcpctl {words} {closed}"]
        ended = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, ""), words
    written = (tmp_path / "out").read_bytes()
    assert written.startswith(b"PAR1")
    assert written.endswith(b"PAR1")  # and no result after it


@pytest.mark.parametrize("words", [["-h"], ["--version"], ["sample", "-h"], ["methods"]])
def test_a_reader_that_left_or_a_full_disk(tmp_path: Path, words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = run(tmp_path, "-m", "vlcpctl", *words, stdout=write)
    assert (ended.returncode, ended.stderr) == (141, "")
    ended = run(tmp_path, "-m", "vlcpctl", *words, stderr=write)
    assert (ended.returncode, bool(ended.stdout)) == (0, True)
    os.close(write)
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            ended = run(tmp_path, "-m", "vlcpctl", *words, stdout=full)
        assert ended.returncode == 1
        (line,) = ended.stderr.splitlines()
        assert line.endswith(": No space left on device")
