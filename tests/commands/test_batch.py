"""`vlcpctl batch` behaves as its lines would, one after another or side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import wait_until

from vlcpctl.commands import COMMANDS
from vlcpctl.commands.batch import loads_model
from vlcpctl.jobs.script import parse
from vlcpctl.testing.tiny_stream import make_task

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in needs a fork")

# The program with a stand-in for the command `check`, which the forked children inherit.
PROGRAM = """
import os, signal, sys, time, types
from pathlib import Path
from unittest.mock import Mock
from vlcpctl import cli
from vlcpctl.core import console
from vlcpctl.core.errors import BadInput, Interrupted
from vlcpctl.core.options import Command, MaybePath, OnePath, argument, option

class Check(Command):
    does: str = argument("WHAT", "What it does", kw_only=False)
    file: OnePath = argument("FILE", "A file", kw_only=False, default=Path("unused"))
    out: MaybePath = option("A path", "PATH", default=None, short="-o")

    def execute(self):
        run(self.does, self.file, self.out)

def run(does, file, out):
    if does == "make-late":
        time.sleep(0.5)
        out.mkdir()
        (out / "inside").touch()
    if does == "fail":
        raise BadInput("row 3")
    if does == "write":
        file.write_text("here")
    if does == "write-late":
        time.sleep(0.5)
        file.write_text("here")
    if does == "write-very-late":
        out.touch()
        time.sleep(2)
        file.write_text("here")
    if does == "expect":
        assert file.exists()
    if does == "meet":  # ends only when another one runs at the same time
        file.with_suffix(f".{os.getpid()}").touch()
        while len(list(file.parent.glob("*.[0-9]*"))) < 2:
            time.sleep(0.01)
    if does == "talk":
        for number in range(200):
            console.emit(f"{file}{number} " + "x" * 5000)
        os.write(2, b"half a line")
    if does == "stdin":
        console.emit(repr(sys.stdin.read()))
    if does == "save":
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            file.touch()  # in the block: the signal may come at once
            time.sleep(30)
        except KeyboardInterrupt:
            time.sleep(0.3)  # a second one would end this with 130
            raise Interrupted("state saved") from None
    if does == "die":
        os.kill(os.getpid(), 9)
    if does == "threads":
        console.emit(f"{len(os.listdir('/proc/self/task'))} {'torch' in sys.modules}")

sys.modules["vlcpctl.commands.check"] = types.SimpleNamespace(Check=Check)
cli.main()
"""


def batch(lines: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What a batch of these lines prints, and its code."""
    command = [sys.executable, "-c", PROGRAM, "batch", "-", *options]
    return subprocess.run(
        command, input=lines, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("lines", "jobs", "code"),
    [
        ("check write 'a b'\ncheck expect 'a b'\n", "1", 0),
        ("check meet m\ncheck meet m\n", "2", 0),
        ("check write-late a\nwait\ncheck expect a\n", "2", 0),
        ("check make-late -o a\ncheck expect ./a/inside\n", "2", 0),
        ("check fail\ncheck write-late a\ncheck write b\n", "2", 3),
        ("check fail\ncheck write b\n", "1", 3),
        ("check die", "1", 128 + 9),
    ],
)
def test_lines_run_in_order_or_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, jobs: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = batch(lines, "--jobs", jobs)
    assert ended.returncode == code, ended.stderr
    # After a failure running lines end, and no other starts.
    assert code != 3 or (Path("a").exists(), Path("b").exists()) == (jobs == "2", False)


def test_quiet_applies_to_every_line_that_has_the_option(tmp_path: Path) -> None:
    sample = f"sample emoji9 --size 16 --limit 2 --groups Flags -o {tmp_path}"
    loud = batch(f"{sample}/a.parquet\n")
    assert "\nsample: " in loud.stderr
    lines = f"{sample}/b.parquet\nwait\ncheck write {tmp_path}/here\n"
    quiet = batch(f"{lines}sample nonsense -o {tmp_path}/c.parquet\n", "--quiet")
    assert quiet.stdout == f"{tmp_path}/b.parquet\n"
    refused, ended = quiet.stderr.splitlines()
    assert refused.startswith("vlcpctl sample: NAME: unknown value")
    assert ended.endswith(
        f"line 4 ended with code 2: vlcpctl sample nonsense -o {tmp_path}/c.parquet"
    )
    assert (tmp_path / "here").exists()


def test_a_line_that_can_start_overtakes_one_that_waits(tmp_path: Path) -> None:
    lines = (
        f"check make-late -o {tmp_path}/a\ncheck expect {tmp_path}/a\n"
        f"check write {tmp_path}/b\ncheck expect {tmp_path}/a -o {tmp_path}/c\n"
    )
    ended = batch(lines, "--jobs", "2")
    assert ended.returncode == 0, ended.stderr
    started = [line.split("]")[0][1:] for line in ended.stderr.splitlines() if "] vlcpctl" in line]
    assert started == ["1", "3", "2", "4"]


def test_parallel_output_keeps_lines_whole_and_marks_the_log() -> None:
    ended = batch("check talk a\ncheck talk b\n", "--jobs", "2")
    lines = ended.stdout.splitlines()
    assert {len(line.split(" ", 1)[1]) for line in lines} == {5000}
    for name in "ab":
        own = [line.split()[0] for line in lines if line.startswith(name)]
        assert own == [f"{name}{number}" for number in range(200)]
    assert {"[1] half a line", "[2] half a line"} <= set(ended.stderr.splitlines())


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_lines_do_not_eat_the_batch_from_stdin(jobs: str) -> None:
    assert batch("check stdin\ncheck stdin\n", "--jobs", jobs).stdout == "''\n''\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("methods\nchek a\n", "line 2: unknown command 'chek'; did you mean 'check'?"),
        ("batch more.txt\n", "line 1: batch cannot run batch"),
    ],
)
def test_a_wrong_line_is_refused_before_any_runs(lines: str, said: str) -> None:
    ended = batch(lines)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr


def test_dry_run_is_that_of_each_line_whose_inputs_no_earlier_line_makes(tmp_path: Path) -> None:
    task, run = make_task(tmp_path / "task", 3), tmp_path / "run"
    train = f"train-step {task} --method seqf --preset tiny --model micro -o {run}\n"
    follows = f"eval-retrieval {task} --checkpoint {run} -o {tmp_path}/rows\n"
    good = batch(f"--help\n{train}wait\n{follows}", "--dry-run", "--quiet")
    assert good.returncode == 0, good.stderr
    assert good.stderr.splitlines() == [
        "warning: not checked: 1 line whose command has no --dry-run",
        "warning: not checked: 1 line whose inputs earlier lines make",
    ]
    bad = batch(f"{train}buffer {tmp_path}/nothing --size 3 -o {tmp_path}/b\n", "--dry-run")
    assert bad.returncode == 3
    assert "line 2 ended with code 3" in bad.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["task"]


@contextmanager
def begun(lines: str, sign: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A batch of these lines, when a file shows that the first of them has begun."""
    command = [sys.executable, "-c", PROGRAM, "batch", "-", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(lines)
        process.stdin.close()
        wait_until(sign.exists)
        yield process


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 75), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_reaches_the_lines_once_and_their_code_comes_back(
    jobs: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    sign = tmp_path / "begun"
    with begun(f"check save {sign}\nwait\nmethods\n", sign, "--jobs", jobs) as process:
        os.killpg(process.pid, number)  # as a terminal does
        assert process.wait(timeout=30) == code
        assert process.stderr is not None
        assert "1 not started" in process.stderr.read()


def test_a_killed_batch_leaves_no_line_running(tmp_path: Path) -> None:
    sign, late = tmp_path / "begun", tmp_path / "late"
    with begun(f"check write-very-late {late} -o {sign}\n", sign) as process:
        process.kill()
    time.sleep(3)
    assert not late.exists()


def test_commands_that_load_models_are_those_that_import_them() -> None:
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("vlcpctl", exclude_type_checking_imports=True, cache_dir=None)
    models = "vlcpctl.models.encoders"
    importing = {
        name
        for name in COMMANDS
        if graph.chain_exists(f"vlcpctl.commands.{name.replace('-', '_')}", models)
    }
    importing |= {"update"}  # it runs command lines by their names
    assert importing == {name for name, command in COMMANDS.items() if command.warm}


def test_an_option_can_decide_whether_a_model_is_loaded() -> None:
    lines = parse(
        "split a.parquet -o s\nsplit a.parquet -o s --labels-from timm:x\n"
        "buffer s/00 --checkpoint=run/00\nwait\n--help\n"
        "export run/00 -o model --to hf-model\nexport run/00 -o model --to onnx\n"
    )
    loads = [loads_model(line) for line in lines]
    assert loads == [False, True, True, False, False, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train-step", "eval-probe"])
def test_a_warm_child_has_torch_and_one_thread(command: str) -> None:
    """A fork copies one thread, so that the parent must have no other."""
    ended = batch(f"check threads\nwait\n{command} --help\n")
    assert ended.stdout.splitlines()[0] == "1 True"
