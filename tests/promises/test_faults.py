"""Faults in a process of its own: the right exit code, one line, and nothing else changed.

Each runs in a fresh copy of a small world (a stream, runs, a buffer, rows, a state, half a run).
Readers of indexes, rows, sources and receipts have tests of their own.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.processes import exit_code_of, run_line, start_child, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MOST_BYTES = 700_000_000  # of memory, above what the idle program has
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TRACES = ("Traceback (most recent", "Exception ignored", "Fatal Python error")
BOMB = "[" * 100_000
A, B = "s/00-smileys-emotion", "s/01-people-body"
TINY = "--preset tiny --batch-size 4 --steps 2"
FIRST = f"train-step {A} -o out --method seqf --model micro {TINY}"
NEXT = f"train-step {B} -o out --previous ctp {TINY} --method"
EVAL = f"eval-retrieval {A} --checkpoint ctp -o out"
HALF = (
    f"train-step {B} -o half --method ewc --previous ewc --save-every 2 --preset tiny "
    "--batch-size 4 --steps 60"
)
WEEK = f"update more.parquet --state prod --split-column split {TINY}"
WORLD = f"""\
sample emoji9 -o pairs.parquet --size 32 --limit 200 --views 2
sample emoji9 -o more.parquet --size 24 --limit 8 --views 2 --groups Objects
split pairs.parquet -o s --by column:group --split-column split --label-column subgroup
train-step {A} -o ctp --method ctp --model micro {TINY}
train-step {B} -o ctp1 --method ctp --previous ctp {TINY}
train-step {A} -o ewc --method ewc --model micro {TINY}
buffer {A} -o buf --policy reservoir --size 12
distill {B} --teacher ctp -o targets
eval-retrieval {A} {B} --checkpoint ctp --checkpoint ctp1 --gallery both -o rows.ndjson
import-checkpoint ctp -o start
update pairs.parquet --state prod --split-column split --init start --set buffer.size=8 \
--fail-if rm:lt:0 {TINY}
"""
# The commands that write, of which each is limited.
WRITERS = {
    "split": "split pairs.parquet -o out --by iid --tasks 3",
    "sample": "sample emoji9 -o out --size 32 --limit 40",
    "buffer": f"buffer {A} -o out --policy ring --size 8",
    "train-step": f"{FIRST} --steps 40 --save-every 5".replace("--steps 2 ", ""),
    "distill": f"distill {B} --teacher ctp -o out",
    "eval-retrieval": EVAL,
    "forgetting-report": "forgetting-report rows.ndjson -o out",
    "spatial-report": f"spatial-report {A} --checkpoint ctp --checkpoint ctp1 -o out",
    "merge": "merge ctp ctp1 -o out",
    "export": f"export {A} --to hf -o out",
    "export model": "export ctp --to hf-model -o out",
    "update": WEEK,
}
Fault = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """A fault, the line that meets it, and the exit codes that are right."""

    name: str
    line: str
    codes: tuple[int, ...]
    fault: Fault = Path.exists
    says: str = ""
    own: str = "out"  # what the line may write


def written(name: str, data: bytes | str) -> Fault:
    """The fault that writes a file."""

    def prepare(world: Path) -> None:
        (world / name).parent.mkdir(parents=True, exist_ok=True)
        (world / name).write_bytes(data.encode() if isinstance(data, str) else data)

    return prepare


def changed(pattern: str, change: Callable[[bytes], bytes]) -> Fault:
    """The fault that changes the bytes of files; no bytes are left of one that is removed."""

    def prepare(world: Path) -> None:
        paths = sorted(world.glob(pattern))
        assert paths, pattern
        for path in paths:
            data = change(path.read_bytes())
            path.write_bytes(data)
            if not data:
                path.unlink()

    return prepare


def flipped(data: bytes) -> bytes:
    at = int(len(data) * 0.7)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one bit flipped": flipped,
    "cut short": lambda data: data[: len(data) // 2],
    "removed": lambda data: b"",
}
NO_JSON: dict[str, bytes | str] = {
    "nested deep": BOMB,
    "empty": "",
    "a list": "[]",
    "not UTF-8": b"\xff{}",
    "half a surrogate pair": '{"schema": "\\ud800"}',
}


def files_of_artifacts() -> Iterator[Case]:
    lines = {
        "weights": ("ctp/open_clip_model.safetensors", f"{NEXT} ctp"),
        "weights, evaluated": ("ctp/open_clip_model.safetensors", EVAL),
        "weights, checked": ("ctp/open_clip_model.safetensors", "check ctp"),
        "a slot": ("ewc/method/*/*.safetensors", f"{NEXT} ewc".replace("ctp", "ewc")),
        "an index": (f"{A}/train.parquet", FIRST),
        "an index, checked": (f"{A}/train.parquet", f"check {A} --deep"),
        "a shard, checked": (f"{A}/train-000000.tar", f"check {A} --deep"),
        "a buffer": ("buf/train.parquet", f"{NEXT} er --buffer buf"),
        "targets": ("targets/*.npy", f"{NEXT} lwf --targets targets"),
        "keys of targets": ("targets/*.parquet", f"{NEXT} lwf --targets targets"),
    }
    for what, (path, line) in lines.items():
        for how, change in DAMAGE.items():
            yield Case(f"{what} {how}", line, (3, 5), changed(path, change))
    state = ".half.vlcpctl/partial/state.safetensors"
    for how, change in DAMAGE.items():
        code = (0,) if how == "removed" else (5,)
        yield Case(f"a state {how}", HALF, code, changed(state, change), own="half")
    log = ".half.vlcpctl/partial/metrics.jsonl"
    yield Case("a log removed", HALF, (5,), changed(log, lambda _: b""), "metrics", "half")
    yield Case("other settings", f"{HALF} --lr 0.5", (4,), says="lr", own="half")
    yield Case("--force", f"{HALF} --force", (0,), changed(state, flipped), own="half")
    yield Case("NaN weights", EVAL, (3, 5, 8), poisoned)


def poisoned(world: Path) -> None:
    path = world / "ctp/open_clip_model.safetensors"
    tensors = {name: np.full_like(one, np.nan) for name, one in load_file(path).items()}
    save_file(tensors, path)


def manifests() -> Iterator[Case]:
    lines = {
        f"{A}/task.json": (FIRST, f"check {A} --deep", f"inspect {A}"),
        "s/stream.json": ("check s", "inspect s"),
        "buf/task.json": (f"{NEXT} er --buffer buf",),
        "ctp/checkpoint.json": (
            f"{NEXT} ctp",
            EVAL,
            "check ctp",
            "inspect ctp",
            "merge ctp ctp1 -o out",
        ),
        "targets/targets.json": (f"{NEXT} lwf --targets targets",),
        "prod/state.json": (WEEK, "inspect prod", "update --state prod --rollback 0"),
    }
    for path, several in lines.items():
        for what, data in NO_JSON.items():
            for line in several:
                yield Case(f"{path} {what}", line, (3, 5), written(path, data), own="prod")


def options() -> Iterator[Case]:
    for words in (
        "--clip-norm nan", "--crop-scale 2,3", "--crop-scale nan,1", "--min-lr 1 --lr 0.1",
        "--warmup 2", "--randaugment 2,999", f"--seed {2**70}", "--lr nan", "--lr 1e400",
        "--lr 1_0", "--lr \u0661e-3", "--weight-decay -1", "--steps 0", "--epochs nan",
        "--batch-size 1", "--limit 0", "--threads 0", "--workers -1", "--device gpu9",
        "--precision fp8", "--method nothing", "--preset nothing", "--model nothing",
        "--image-size 0", "--temperature fixed:nan", "--temperature fixed:1e308",
        "--save-every nanmin", "--accept-inexact", "--fresh-state", "--from-scratch",
        "--replay 3", "--set x", "--set ctp.x=1", "--nproc 0", "--nodes 0", "--masking all",
        "--keep moon", "--run=", "--run a\x1bb", "--captions two", "--micro-batch 0",
        "--teacher ctp", "--targets targets", "--unknown", "--lr",
    ):  # fmt: skip
        yield Case(ascii(words), f"{FIRST} {words}", (2,))
    for line in (
        f"{EVAL} --limit 0", f"{EVAL} --batch-size 0", f"{EVAL} --gallery moon",
        f"buffer {A} -o out --policy ring --size 0", f"buffer {A} -o out --policy moon --size 5",
        "merge ctp ctp1 -o out --weights nan,1", "split pairs.parquet -o out --by moon",
        "split pairs.parquet -o out --by iid --tasks 0",
        "split pairs.parquet -o out --by iid --tasks 3 --holdout test=nan",
        "split pairs.parquet -o out --by iid --tasks 3 --max-skip 200%",
        "split pairs.parquet -o out --by iid --tasks 3 --shard-size x",
        f"distill {B} --teacher ctp -o out --num-shards 2 --shard-index 5",
        "invert-texts --checkpoint ctp --buffer buf -o out --count 0",
        "forgetting-report rows.ndjson -o out --fail-if bwt_gem:>:nan",
        "merge ctp ctp1 -o ctp --force",
    ):  # fmt: skip
        yield Case(line, line, (2,))
    for url in ("s3://bucket/x", "https://host/x", "file:///data/x"):
        yield Case(f"-o {url}", f"buffer {A} -o {url} --size 8", (2,))
    for out in (".", "..", "/", "s", "pairs.parquet", A, "-"):
        yield Case(f"-o {out}", f"buffer {A} -o {out} --size 8 --force", (2, 4), own="nothing")
    foreign = written("out/mine.txt", "mine")
    yield Case("a foreign directory", f"buffer {A} -o out --size 8 --force", (4,), foreign)
    for line in (f"{NEXT} ctp --method-file pipe", "methods --method-file pipe", "batch pipe"):
        yield Case("a named pipe", line, (3,), lambda at: os.mkfifo(at / "pipe"), "regular file")


CASES = [*files_of_artifacts(), *manifests(), *options()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    for line in WORLD.replace("\\\n", "").splitlines():
        assert run(root, line)[0] == 0, line
    pid = start_child(lambda _: forked(root, HALF))
    state = root / ".half.vlcpctl/partial/state.safetensors"
    saved: set[int] = set()

    def twice() -> bool:
        if state.exists():
            saved.add(state.stat().st_ino)
        return len(saved) > 1

    wait_until(twice)
    os.kill(pid, signal.SIGKILL)
    assert exit_code_of(pid) == -signal.SIGKILL
    return root


@pytest.fixture
def place(world: Path, tmp_path: Path) -> Path:
    return shutil.copytree(world, tmp_path / "w", symlinks=True)


def forked(place: Path, line: str) -> None:
    os.setsid()
    os.chdir(place)
    run_line(line.split(), place.parent / "log")


def run(place: Path, line: str) -> tuple[int, str, str, int]:
    """Exit code, stdout and stderr of a line in a child, and the bytes that it needed."""
    pid = start_child(lambda _: forked(place, line))
    _, status, usage = os.wait4(pid, 0)
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out, err = (
        (place.parent / f"log.{name}").read_text(encoding="utf-8", errors="backslashreplace")
        for name in ("out", "err")
    )
    return os.waitstatus_to_exitcode(status), out, err, 1024 * max(0, usage.ru_maxrss - idle)


def listing(place: Path) -> dict[str, object]:
    """Every path below a directory, with size and time of a file."""
    found: dict[str, object] = {}
    for above, directories, files in os.walk(place):
        inside = Path(above).relative_to(place)
        found |= {str(inside / name): "directory" for name in directories}
        for name in files:
            about = (Path(above) / name).lstat()
            found[str(inside / name)] = (about.st_size, about.st_mtime_ns)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}: {case.line.split()[0]}")
def test_a_fault_is_one_line_and_changes_nothing_else(place: Path, case: Case) -> None:
    case.fault(place)
    before = listing(place)
    code, out, err, memory = run(place, case.line)
    assert code in case.codes, err
    assert not UNSAFE.search(out + err)
    assert not any(mark in err for mark in TRACES), err
    assert case.says in err
    assert memory < MOST_BYTES
    if code:
        *_, last = err.rstrip().splitlines()
        assert last.startswith("vlcpctl"), err
    after = listing(place)
    own = (case.own, f".{case.own}.vlcpctl", *(["prod"] if case.own == "prod" else []))
    names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {name for name in names if name.split("/")[0] not in own} == set()
    assert not [name for name in after if "writing" in name]
    assert code == 0 or case.own in before or case.own not in after


def bash(place: Path, line: str) -> subprocess.CompletedProcess[str]:
    """A bash line that starts the real program as $vlcpctl."""
    wrapper = place.parent / "vlcpctl"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vlcpctl "$@"\n')
    wrapper.chmod(0o755)
    return subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env={**os.environ, "vlcpctl": str(wrapper)},
        capture_output=True,
        text=True,
        check=False,
    )


# A week runs lines, which need more than 12 files.
@pytest.mark.parametrize("name", sorted({*WRITERS} - {"update"}))
@pytest.mark.parametrize(
    "limit", ["ulimit -n 12", "trap '' XFSZ; ulimit -f 20", "ulimit -v 1200000"]
)
def test_a_limit_is_one_line(place: Path, name: str, limit: str) -> None:
    ended = bash(place, f"{limit}; timeout 60 $vlcpctl {WRITERS[name]} -q")
    assert ended.returncode in {0, 1}, ended.stderr
    assert not any(mark in ended.stderr for mark in TRACES), ended.stderr
