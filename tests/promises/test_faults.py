"""Damaged inputs, in a process of its own: the right exit code, one line, and nothing else changed.

Each runs in a fresh copy of a small world (a stream, runs, a buffer, targets, rows, a state).
Readers of indexes, rows, sources, saved states and receipts have tests of their own.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.processes import run_line, start_child

from vlcpctl.models.imports import preload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MOST_BYTES = 300_000_000  # of memory, above what the idle program has
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TRACES = ("Traceback (most recent", "Exception ignored", "Fatal Python error")
A, B = "s/00-smileys-emotion", "s/01-people-body"
TINY = "--preset tiny --batch-size 4 --steps 2"
FIRST = f"train-step {A} -o out --method seqf --model micro {TINY}"
NEXT = f"train-step {B} -o out --previous ctp {TINY} --method"
EVAL = f"eval-retrieval {A} --checkpoint ctp -o out"
WEEK = f"update more.parquet --state prod --split-column split {TINY}"
WORLD = f"""
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
update pairs.parquet --state prod --split-column split --init start --set buffer.size=8 {TINY}
"""
Fault = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """A fault, and the line that meets it."""

    name: str
    line: str
    fault: Fault
    own: str = "out"  # what the line may write


def changed(pattern: str, change: Callable[[bytes], bytes]) -> Fault:
    """The fault that changes the bytes of a file; one of which none are left is removed."""

    def prepare(world: Path) -> None:
        (path,) = sorted(world.glob(pattern))[:1]
        data = change(path.read_bytes())
        path.write_bytes(data) if data else path.unlink()

    return prepare


def holding(data: bytes) -> Callable[[bytes], bytes]:
    return lambda _: data


def flipped(data: bytes) -> bytes:
    at = int(len(data) * 0.7)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one bit flipped": flipped,
    "cut short": lambda data: data[: len(data) // 2],
    "removed": lambda data: b"",
}
NO_JSON = {
    "nested deep": b"[" * 100_000,
    "white": b" ",
    "a list": b"[]",
    "not UTF-8": b"\xff{}",
    "half a surrogate pair": b'{"schema": "\\ud800"}',
}
# The lines that read a file.
FILES = {
    "ctp/open_clip_model.safetensors": (f"{NEXT} ctp", EVAL, "check ctp"),
    "ewc/method/*/*.safetensors": (f"{NEXT} ewc".replace("ctp", "ewc"),),
    f"{A}/train.parquet": (FIRST, f"check {A} --deep"),
    f"{A}/train-000000.tar": (f"check {A} --deep",),
    "buf/train.parquet": (f"{NEXT} er --buffer buf",),
    "targets/*.npy": (f"{NEXT} lwf --targets targets",),
    "targets/*.parquet": (f"{NEXT} lwf --targets targets",),
}
MANIFESTS = {
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


def damages() -> Iterator[Case]:
    for path, lines in FILES.items():
        for how, change in DAMAGE.items():
            for line in lines:
                yield Case(f"{path} {how}", line, changed(path, change))
    for path, lines in MANIFESTS.items():
        for what, data in NO_JSON.items():
            fault = changed(path, holding(data))
            for line in lines:
                yield Case(f"{path} {what}", line, fault, own="prod")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    preload()  # once for all children
    root = tmp_path_factory.mktemp("world")
    for line in WORLD.strip().splitlines():
        assert run(root, line)[0] == 0, line
    return root


@pytest.fixture
def place(world: Path, tmp_path: Path) -> Path:
    return shutil.copytree(world, tmp_path / "w", symlinks=True)


def run(place: Path, line: str) -> tuple[int, str, str, int]:
    """Exit code, stdout and stderr of a line in a child, and the bytes that it needed."""

    def act(_: int) -> None:
        os.chdir(place)
        run_line(line.split(), place.parent / "log")

    _, status, usage = os.wait4(start_child(act), 0)
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out, err = (
        (place.parent / f"log.{name}").read_text(encoding="utf-8", errors="backslashreplace")
        for name in ("out", "err")
    )
    return os.waitstatus_to_exitcode(status), out, err, 1024 * max(0, usage.ru_maxrss - idle)


def listing(place: Path) -> dict[str, object]:
    """Every path below a directory, with size and time of a file."""
    return {
        path.relative_to(place).as_posix(): (about.st_size, about.st_mtime_ns)
        for path in place.rglob("*")
        for about in [path.lstat()]
        if not path.is_dir()
    }


@pytest.mark.parametrize(
    "case", [*damages()], ids=lambda case: f"{case.name}: {case.line.split()[0]}"
)
def test_a_fault_is_one_line_and_changes_nothing_else(place: Path, case: Case) -> None:
    case.fault(place)
    before = listing(place)
    code, out, err, memory = run(place, case.line)
    assert code in {3, 5}, err
    assert not UNSAFE.search(out + err)
    assert not any(mark in err for mark in TRACES), err
    assert memory < MOST_BYTES
    assert err.rstrip().splitlines()[-1].startswith("vlcpctl"), err
    after = listing(place)
    own = ("out", ".out.vlcpctl", case.own)
    names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {name for name in names if name.split("/")[0] not in own} == set()
    assert not [name for name in after if "writing" in name or name.split("/")[0] == "out"]
