"""The world of which every case gets a copy: a stream, runs, a buffer, rows, half-written runs.

It is made by the program itself, with a micro model, in less than a minute.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

A, B = "s/00-smileys-emotion", "s/01-people-body"
TRAIN = "--preset tiny --batch-size 4 --steps 6"
FIRST = f"{TRAIN} --model micro"
_RESUMED = "--save-every 2 --preset tiny --batch-size 4 --steps 60"
HALF = f"train-step {B} -o half --method ewc --previous ewc {_RESUMED}"
STATE_WEEK = "--state prod --split-column split --preset tiny --batch-size 4 --steps 2"
HALF_CTP = f"train-step {B} -o halfctp --method ctp --previous ctp {_RESUMED}"

_LINES = f"""\
sample emoji9 -o pairs.parquet --size 32 --limit 200 --views 2
split pairs.parquet -o s --by column:group --split-column split --label-column subgroup
split pairs.parquet -o t --by column:group --split-column split --label-column subgroup \
--order reverse
train-step {A} -o ctp --method ctp {FIRST}
train-step {B} -o ctp1 --method ctp --previous ctp {TRAIN}
train-step {A} -o ewc --method ewc {FIRST}
train-step {A} -o seed1 --method ctp --seed 1 {FIRST}
buffer {A} -o buf --policy reservoir --size 12
buffer {B} -o buf1 --policy reservoir --size 12 --previous buf
buffer {B} -o future --policy reservoir --size 12
distill {B} --teacher ctp -o targets
eval-retrieval {A} {B} --checkpoint ctp --checkpoint ctp1 --gallery both -o rows.ndjson
eval-retrieval {A} {B} --checkpoint seed1 -o seed1.ndjson
eval-zeroshot {A} --checkpoint ctp -o zeroshot.ndjson
forgetting-report rows.ndjson -o report
sample emoji9 -o more.parquet --size 32 --limit 8 --views 2 --groups Objects
import-checkpoint ctp -o start
update pairs.parquet {STATE_WEEK} --init start --set buffer.size=8 --fail-if rm:lt:0
"""


def make_world(world: Path, program: list[str]) -> Path:
    """Make the world at a path."""
    world.mkdir(parents=True)
    for line in _LINES.splitlines():
        run = [*program, *line.split()]
        done = subprocess.run(run, cwd=world, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the world cannot be made: {line}\n{done.stderr}")
    for line in (HALF, HALF_CTP):
        _killed(world, program, line)
    return world


def copied(world: Path, to: Path) -> Path:
    """A copy of the world that a case may damage."""
    shutil.copytree(world, to, symlinks=True)
    return to


def _killed(world: Path, program: list[str], line: str) -> None:
    """Run a train-step and kill it after its second saved state."""
    out = line.split(" -o ")[1].split(maxsplit=1)[0]
    process = subprocess.Popen(
        [*program, *line.split()], cwd=world, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    state, saved = world / f".{out}.vlcpctl/partial/state.safetensors", set[int]()
    deadline = time.monotonic() + 120
    while len(saved) < 2:
        with suppress(FileNotFoundError):
            saved.add(state.stat().st_ino)
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the world cannot be made: {line} did not save in time")
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
