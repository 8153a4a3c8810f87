"""The process of a command: what it sees, what is passed on, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import vlcpctl
from vlcpctl.api.child import output_of
from vlcpctl.testing.tiny_stream import make_stream, make_task


def test_a_file_beside_the_notebook_is_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise RuntimeError('not mine')\n")
    make_task(tmp_path / "task", 2)
    monkeypatch.chdir(tmp_path)
    assert vlcpctl.inspect("task")["kind"] == "task"


@pytest.mark.parametrize(
    ("script", "said", "shown"),
    [
        ("kill -9 $$", "the process was ended by SIGKILL", ""),
        ("echo Traceback >&2\necho 'ValueError: 3' >&2\nexit 1", "^ValueError: 3$", "Traceback\n"),
    ],
)
def test_a_process_that_fails_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    script: str,
    said: str,
    shown: str,
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(vlcpctl.VlcpError, match=said):
        output_of("inspect", ["task"])
    assert shown in capfd.readouterr().err


@pytest.mark.slow
def test_an_interrupt_of_the_group_reaches_the_command_once_and_it_saves(tmp_path: Path) -> None:
    """As Ctrl-C in a terminal does; a second signal would end it without saving."""
    task = make_stream(tmp_path / "stream", 1, 16) / "00-part-0"
    script = f"""
    import vlcpctl
    try:
        vlcpctl.train_step({str(task)!r}, out={str(tmp_path / "run")!r}, method="seqf",
            preset="tiny", model="micro", batch_size=4, steps=100000)
    except KeyboardInterrupt:
        print("interrupted")
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        while "100000 steps" not in process.stderr.readline():
            pass
        process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, told = process.communicate(timeout=100)
    assert out == "interrupted\n"
    assert "the same command resumes" in told
    assert list(tmp_path.rglob("partial/state.safetensors"))
