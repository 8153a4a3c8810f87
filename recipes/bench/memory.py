"""Weigh what each row of an index costs: anonymous memory and CPU time, from 10^4 to 10^6 rows.

Run: python recipes/bench/memory.py [DIRECTORY] [--rows 10000,100000,1000000] [--only train,...]
                                    [--rounds 5]

The rows are made up: each has a key and a caption of its own, and one of 64 images. Commands run in
processes of their own, up to the point named: train-step with two workers until its first step,
eval-retrieval until its first batch of images, buffer and split to their end. Memory is anonymous
memory (Pss_Anon of smaps_rollup, summed over a command's processes, so that pages they share count
once), without mapped files; the peak is polled, and bytes per row are the slope between the
smallest and the largest number of rows. "copied" are pages that only one worker has. CPU time is
that of a command beyond its time with the fewest rows. Sizes take turns; each figure is the median
of the rounds.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from turns import ONE_THREAD, machine

from vlcpctl.core.console import emit
from vlcpctl.data.emoji9.glyphs import PATH
from vlcpctl.data.tasks.index import SCHEMA, IndexWriter
from vlcpctl.data.tasks.manifests import TaskSummary, file_facts, write_task_manifest
from vlcpctl.data.tasks.samples import Pair, identify
from vlcpctl.data.tasks.shards import SplitWriter
from vlcpctl.data.tasks.tar import Appender

SIZES = (10_000, 100_000, 1_000_000)
IMAGES = 64
CAPTION = "a photo of a small round thing with number {:09d} on a table"
MODEL = ("--method", "seqf", "--preset", "tiny", "--model", "micro", "--batch-size", "16")
WORKERS = 2
POLLS_S = 0.02
MEGABYTE = 1 << 20
# What a command runs instead of itself: it stops where what it does for each row at the start ends.
STOP = """
import os, signal
from {module} import {name}
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGSTOP)
{name}.{method} = stop
from vlcpctl.__main__ import main
main()
"""
STOPS = {
    "train-step": ("vlcpctl.training.step", "OptimizerStep", "__call__"),
    "eval-retrieval": ("vlcpctl.data.loading.eval_batches", "EvalImages", "__getitem__"),
}


@dataclass(frozen=True)
class Weight:
    """What a command took."""

    peak: int  # bytes
    held: int  # bytes, where it was stopped
    copied: int  # bytes, of all workers
    cpu: float  # seconds


def main() -> None:
    """Print a table for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--rows", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sizes = [int(size) for size in given.rows.split(",")]
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        directory = Path(name)
        checkpoint = make_checkpoint(directory)
        emit(machine())
        for kind in given.only.split(","):
            rounds = [
                [weigh_kind(kind, directory, rows, checkpoint) for rows in sizes]
                for _ in range(given.rounds)
            ]
            show(kind, sizes, [middle(size) for size in zip(*rounds, strict=True)])


def weigh_kind(kind: str, directory: Path, rows: int, checkpoint: Path) -> Weight:
    """Run a command of a kind on as many rows, and remove what it wrote."""
    found = weigh(KINDS[kind](directory, rows, checkpoint))
    for left in directory.glob("*out-*"):
        shutil.rmtree(left, ignore_errors=True)
    return found


def middle(rounds: Sequence[Weight]) -> Weight:
    """The median of each figure."""
    peak, held, copied, cpu = (
        median(getattr(one, field.name) for one in rounds) for field in fields(Weight)
    )
    return Weight(int(peak), int(held), int(copied), cpu)


def show(kind: str, sizes: Sequence[int], found: Sequence[Weight]) -> None:
    """Print what a command took for each number of rows, per row, and how it grows."""
    emit("")
    emit(kind)
    emit(f"{'rows':>10}{'peak MB':>10}{'held MB':>10}{'copied MB':>11}{'CPU s':>8}")
    for rows, one in zip(sizes, found, strict=True):
        cells = [size / MEGABYTE for size in (one.peak, one.held, one.copied)]
        emit(f"{rows:>10}{cells[0]:>10.1f}{cells[1]:>10.1f}{cells[2]:>11.1f}{one.cpu:>8.2f}")
    first, last = found[0], found[-1]
    more = sizes[-1] - sizes[0]
    names = ("peak", "held", "copied")
    per_row = [
        f"{name} {(getattr(last, name) - getattr(first, name)) / more:.0f}" for name in names
    ]
    emit(f"bytes per row: {', '.join(per_row)}")
    if len(found) > 2:
        before, whole = (one.cpu - first.cpu for one in found[-2:])
        grown = (sizes[-1] - sizes[0]) / (sizes[-2] - sizes[0])
        exponent = math.log(max(whole, 1e-3) / max(before, 1e-3)) / math.log(grown)
        emit(f"CPU time beyond {sizes[0]} rows grows with exponent {exponent:.2f}")


def weigh(command: Sequence[str]) -> Weight:
    """Run a command until it ends or stops itself; then it is killed with its workers."""
    environment = {**os.environ, **ONE_THREAD, "MALLOC_ARENA_MAX": "1"}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    peak, held, copied = 0, 0, 0
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG | os.WUNTRACED)
        family = [process.pid, *children(process.pid)]
        total = sum(anonymous(one, "Pss_Anon") for one in family)
        peak = max(peak, total)
        if ended and os.WIFSTOPPED(status):
            held = total
            copied = sum(anonymous(one, "Private_Dirty") for one in family[1:])
            os.killpg(process.pid, signal.SIGKILL)
            _, _, usage = os.wait4(process.pid, 0)
            break
        if ended:
            if status:
                assert process.stdout is not None
                sys.exit(process.stdout.read().decode())
            break
        time.sleep(POLLS_S)
    process.returncode = 0
    return Weight(peak, held, copied, usage.ru_utime + usage.ru_stime)


def children(process: int) -> list[int]:
    """The child processes of a process."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8")
    except OSError:
        return []
    return [int(one) for one in text.split()]


def anonymous(process: int, field: str) -> int:
    """A field of what the kernel sums up of a process's memory, in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    found = next((line for line in lines if line.startswith(f"{field}:")), f"{field}: 0")
    return 1024 * int(found.split()[1])


def vlcpctl(*args: object) -> list[str]:
    """A command line of vlcpctl, stopped where `STOPS` says."""
    words = [str(arg) for arg in args]
    if words[0] not in STOPS:
        return [sys.executable, "-m", "vlcpctl", *words]
    module, name, method = STOPS[words[0]]
    return [sys.executable, "-c", STOP.format(module=module, name=name, method=method), *words]


def train(directory: Path, rows: int, _: Path) -> list[str]:
    """The start of training, up to the first step."""
    task = make_task(directory / f"{rows}", rows, "train")
    return vlcpctl(
        "train-step", task, "-o", directory / f"out-{rows}", *MODEL, "--workers", WORKERS
    )


def reservoir(directory: Path, rows: int, _: Path) -> list[str]:
    """A buffer of 1000 images: memory for each row read."""
    return buffer(directory, rows, 1000)


def kept(directory: Path, rows: int, _: Path) -> list[str]:
    """A buffer of nine tenths of the images: memory for each row kept."""
    return buffer(directory, rows, rows * 9 // 10)


def buffer(directory: Path, rows: int, size: int) -> list[str]:
    """A buffer with the policy reservoir."""
    task = make_task(directory / f"{rows}", rows, "train")
    return vlcpctl(
        "buffer", task, "-o", directory / f"out-{rows}", "--policy", "reservoir", "--size", size
    )


def update(directory: Path, rows: int, _: Path) -> list[str]:
    """The update of a buffer of nine tenths of a task with another task of as many rows."""
    previous = directory / f"held-{rows}"
    if not previous.exists():
        first = buffer(directory, rows, rows * 9 // 10)
        subprocess.run([*first[:6], str(previous), *first[7:]], check=True, capture_output=True)
    task = make_task(directory / f"second-{rows}", rows, "train", first=10**8)
    words = ("--policy", "reservoir", "--size", rows * 9 // 10, "--previous", previous)
    return vlcpctl("buffer", task, "-o", directory / f"out-{rows}", *words)


def evaluation(directory: Path, rows: int, checkpoint: Path) -> list[str]:
    """The start of an evaluation, up to the first batch."""
    task = make_task(directory / f"test-{rows}", rows, "test")
    out = directory / f"out-{rows}.ndjson"
    return vlcpctl("eval-retrieval", task, "--checkpoint", checkpoint, "-o", out)


def split(directory: Path, rows: int, _: Path) -> list[str]:
    """A whole split of rows with the same small image and captions of their own."""
    source = directory / f"pairs-{rows}.parquet"
    write_source(source, rows)
    return vlcpctl("split", source, "-o", directory / f"out-{rows}", "--by", "source")


KINDS: dict[str, Callable[[Path, int, Path], list[str]]] = {
    "train": train,
    "reservoir": reservoir,
    "kept": kept,
    "update": update,
    "evaluation": evaluation,
    "split": split,
}


def make_checkpoint(directory: Path) -> Path:
    """A tiny model trained for one step."""
    task = make_task(directory / "few", IMAGES, "train")
    out = directory / "checkpoint"
    words = ("train-step", task, "-o", out, *MODEL, "--steps", "1")
    command = [sys.executable, "-m", "vlcpctl", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def make_task(directory: Path, rows: int, split_name: str, first: int = 0) -> Path:
    """A task of made-up rows, numbered from `first`, that share 64 images; its directory."""
    if directory.exists():
        return directory
    directory.mkdir()
    writer = SplitWriter(directory, split_name, "many", Appender())
    writer.extend([identify(pair) for pair in pairs()])
    listed = writer.close()
    index = directory / f"{split_name}.parquet"
    images = pq.read_table(index).to_pylist()
    many, random = IndexWriter(index), np.random.default_rng(first)
    for start in range(0, rows, 2048):
        keys = random.bytes(16 * 2048).hex()
        for place in range(min(2048, rows - start)):
            number = first + start + place
            own = {"key": keys[32 * place : 32 * place + 32], "captions": [CAPTION.format(number)]}
            row = {**images[number % IMAGES], **own}
            many.add([row[name] for name in SCHEMA.names])
    many.close()
    facts = file_facts(directory, split_name, listed.shards)
    content = many.content.hexdigest()
    listed = replace(listed, images=rows, captions=rows, content=content, **facts)
    summary = TaskSummary("many", {split_name: listed}, [])
    more = {"tasks_in_stream": 1, "stream": None, "inputs": []}
    write_task_manifest(directory, summary, {"made": "up"}, step=0, more=more)
    return directory


def pairs() -> list[Pair]:
    """Pairs of one picture each."""
    pictures = pq.read_table(PATH)["image"].slice(0, IMAGES).to_pylist()
    return [
        Pair(number, f"{number}", picture, [f"caption {number}"], None, None, None)
        for number, picture in enumerate(pictures)
    ]


def write_source(path: Path, rows: int) -> None:
    """A Parquet file of pairs for `split`."""
    picture = pairs()[0].image
    schema = pa.schema([("image", pa.binary()), ("caption", pa.string())])
    with pq.ParquetWriter(path, schema) as to:
        for start in range(0, rows, 2000):
            numbers = range(start, min(start + 2000, rows))
            columns = [[picture] * len(numbers), [CAPTION.format(number) for number in numbers]]
            to.write_table(pa.table(columns, schema=schema))


if __name__ == "__main__":
    main()
