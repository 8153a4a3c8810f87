"""The program around the commands: what it imports, what it prints where, how it ends."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vlcpctl import cli
from vlcpctl.commands.doctor import Doctor
from vlcpctl.core.errors import BadInput, Diverged, Interrupted, OutputExists, VlcpError

Program = Callable[..., int]


def vlcpctl(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own."""
    command = [sys.executable, "-m", "vlcpctl", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Runs the program in this process, with `run` in the place of the command `doctor`."""

    def start(run: Callable[[], None], *words: str) -> int:
        monkeypatch.setattr(Doctor, "execute", lambda _: run())
        monkeypatch.setattr(sys, "argv", ["vlcpctl", *(words or ("doctor",))])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0)

    monkeypatch.delenv("VLCPCTL_DEBUG", raising=False)
    yield start
    os.environ.pop("VLCPCTL_DEBUG", None)


def test_only_public_names_of_typer_are_used() -> None:
    """Its version has no upper bound: what starts with an underscore may change in any."""
    files = Path(cli.__file__).parent.rglob("*.py")
    private = re.compile(r"typer(\.\w+)*\._[^_]|_protected_args|_shell_completion|_opt_prefixes")
    assert [one.name for one in files if private.search(one.read_text(encoding="utf-8"))] == []


def test_help_takes_little_more_than_typer_itself() -> None:
    """About 0.14 s of CPU, where importing typer takes 0.12; a heavy import costs several times."""

    def cpu_seconds(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    help_, typer_ = ("-m", "vlcpctl", "--help"), ("-c", "import typer")
    turns = [(cpu_seconds(*help_), cpu_seconds(*typer_)) for _ in range(5)]
    ours, theirs = (min(times) for times in zip(*turns, strict=True))
    assert ours < 1.7 * theirs


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    ended = vlcpctl("train_step")
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "vlcpctl: unknown command 'train_step'; did you mean train-step? 'vlcpctl --help' lists all"
    )
    assert ended.stderr.count("\n") == 1
    assert not ended.stdout


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (VlcpError("it broke"), 1, "it broke"),
        (BadInput("row 3 of a.csv has no image"), 3, "row 3 of a.csv has no image"),
        (OutputExists("run/00 exists"), 4, "run/00 exists"),
        (Diverged("loss is nan at step 4"), 8, "loss is nan at step 4"),
        (Interrupted("stopped at step 9"), 75, "stopped at step 9"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "out"), 1, "out: Read-only file system"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), 1, "a/b: Permission denied"),
        (OSError(errno.EXDEV, "Cross-device link", "a", None, "b"), 1, "a -> b: Cross-device link"),
    ],
)
def test_an_error_is_one_line_and_a_code(
    program: Program, capfd: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    def run() -> None:
        raise error

    assert program(run) == code
    assert capfd.readouterr() == ("", f"vlcpctl doctor: {said}\n")


@pytest.mark.parametrize("words", [("--debug", "doctor"), ("doctor", "--debug")])
def test_debug_anywhere_shows_the_traceback(
    program: Program, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    def run() -> None:
        raise BadInput("row 3")

    assert program(run, *words) == 3
    err = capfd.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("vlcpctl doctor: row 3\n")


def test_a_mistake_of_ours_is_not_hidden(program: Program) -> None:
    def run() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program(run)


def test_only_results_reach_stdout() -> None:
    code = """
import os, sys, types
from vlcpctl import cli
from vlcpctl.core import console

def run(_):
    print("a library talks")
    os.write(1, b"a library written in C talks\\n")
    console.emit("runs/00")
    console.results().write("row\\n")

from vlcpctl.commands.doctor import Doctor
Doctor.execute = run
sys.argv = ["vlcpctl", "doctor"]
cli.main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "runs/00\nrow\n"
    assert set(ended.stderr.splitlines()) == {"a library talks", "a library written in C talks"}


def test_ctrl_c_ends_with_130(program: Program, capfd: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        raise KeyboardInterrupt

    assert program(run) == 130
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_what_is_half_done_and_ends_with_its_code(
    tmp_path: Path, number: signal.Signals
) -> None:
    code = f"""
import os, sys, time, types
from pathlib import Path
from vlcpctl.__main__ import main
from vlcpctl.files.outputs import new_file

def run(_):
    with new_file(Path("deep/out"), lambda _: True) as temporary:
        temporary.write_text("half")
        class Awkward:
            def __del__(self):
                os.kill(os.getpid(), {number})  # an exception here would be printed and dropped
                time.sleep(10)
        Awkward()

from vlcpctl.commands.doctor import Doctor
Doctor.execute = run
sys.argv = ["vlcpctl", "doctor"]
main()
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")
    assert list(tmp_path.iterdir()) == []


def test_what_a_library_buffers_in_c_goes_to_stderr_before_the_end() -> None:
    code = """
import ctypes, sys, types
from vlcpctl.core import console

def run(_):
    ctypes.CDLL(None).puts(b"a library talks")
    console.emit("runs/00")

from vlcpctl.commands.doctor import Doctor
Doctor.execute = run
sys.argv = ["vlcpctl", "doctor"]
from vlcpctl.__main__ import main
main()
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("runs/00\n", "a library talks\n")


@pytest.mark.parametrize(("module", "printed"), [("coverage", ["saved"]), ("other", [])])
def test_the_process_leaves_before_its_teardown_unless_coverage_measures_it(
    module: str, printed: list[str]
) -> None:
    code = f"""
import atexit, sys, types
sys.modules[{module!r}] = types.ModuleType({module!r})
atexit.register(print, "saved")
sys.argv = ["vlcpctl", "--version"]
from vlcpctl.__main__ import main
main()
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[1:] == printed


def test_threads_and_functions_at_exit_are_waited_for() -> None:
    code = """
import atexit, sys, threading, time, types

def run(_):
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (time.sleep(0.2), print("a thread ends"))).start()
    raise ValueError("unexpected")

from vlcpctl.commands.doctor import Doctor
Doctor.execute = run
sys.argv = ["vlcpctl", "doctor"]
from vlcpctl.__main__ import main
main()
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == ["a thread ends", "at exit"]
    assert "ValueError: unexpected" in ended.stderr
