"""The command itself, as true processes: stopped by signals and killed at random times."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from vlcpctl.testing.battery import TrainingWorld, checkpoint_bytes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def _start(world: TrainingWorld, root: Path, number: int, steps: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vlcpctl", "train-step", str(world.tasks[number])]
    command += ["-o", str(root / f"{number:02d}"), "--method", "ctp", "--preset", "tiny"]
    command += ["--batch-size", "4", "--steps", str(steps), "--save-every", "3", "--quiet"]
    command += ["--previous", str(root / f"{number - 1:02d}")] if number else ["--model", "micro"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, text=True, stdout=-1, stderr=-1, env=environment)


def _saved_at(root: Path, number: int) -> int:
    state = root / f".{number:02d}.vlcpctl/partial/state.safetensors"
    with suppress(FileNotFoundError):
        return state.stat().st_mtime_ns
    return 0


def test_killed_at_random_times_equals_never_stopped(world: TrainingWorld, tmp_path: Path) -> None:
    steps, draw = 600, random.Random(0)
    for number in (0, 1):
        process = _start(world, tmp_path / "whole", number, steps)
        process.communicate()
        assert process.returncode == 0
    killed = 0
    for number in (0, 1):
        while not (tmp_path / "cut" / f"{number:02d}").exists():
            process = _start(world, tmp_path / "cut", number, steps)
            begun = _saved_at(tmp_path / "cut", number)
            while process.poll() is None and _saved_at(tmp_path / "cut", number) == begun:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 1.5))
            process.kill()
            process.communicate()  # and close its pipes
            killed += process.returncode == -signal.SIGKILL
    assert killed >= 3
    assert checkpoint_bytes(tmp_path / "cut") == checkpoint_bytes(tmp_path / "whole")


def test_sigterm_saves_and_exits_75_and_the_same_command_resumes(
    world: TrainingWorld, tmp_path: Path
) -> None:
    process = _start(world, tmp_path, 0, 3000)
    while not _saved_at(tmp_path, 0):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate()
    assert (process.returncode, out) == (75, "")
    assert error.startswith("vlcpctl train-step: stopped after step ")
    again = _start(world, tmp_path, 0, 3000)
    assert again.communicate()[0].strip() == str(tmp_path / "00")
