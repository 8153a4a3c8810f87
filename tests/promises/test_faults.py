"""Three hundred faults: the right exit code, one line that explains it, and nothing else changed.

Each runs in a fresh copy of a small world (a stream, runs, a buffer, rows, a state, half a run).
"""

from __future__ import annotations

import json
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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file
from support.edits import INDEX_EDITS, edit_json
from support.hostile import block, member, pax
from support.processes import exit_code_of, run_line, start_child, wait_until

from vlcpctl.testing.tiny_stream import make_image

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
REPORT = "forgetting-report edited.ndjson -o out --allow-missing"
SPLIT = "split src -o out --by iid --tasks 2 --max-skip 0"
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
# The commands that write, of which each is killed, limited, and run twice at once.
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


def linked(name: str) -> Fault:
    """The fault that makes a file whose disk fails."""

    def prepare(world: Path) -> None:
        (world / name).parent.mkdir()
        (world / name).symlink_to("/proc/self/mem")

    return prepare


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


def fields(path: str, **values: object) -> Fault:
    """The fault that sets fields of an object in a JSON file."""
    return lambda world: edit_json(world / path, lambda found: found.update(values))


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
    edits: dict[str, dict[str, Any]] = {
        f"{A}/task.json": {
            "slug": "../../x", "content": "0" * 32, "step": 10**9, "splits": {"train": 1},
            "labels": 1, "name": [], "identity": None,
        },
        "ctp/checkpoint.json": {
            "step": "x", "tasks": [1, 2], "task_steps": [0, 1, 2], "identity": {}, "files": [],
            "run": 7, "content": "0" * 32, "schema": "vlcpctl.checkpoint/9", "train_seconds": "x",
        },
        "s/stream.json": {"tasks": None},
    }  # fmt: skip
    for path, values in edits.items():
        for name, value in values.items():
            line = lines[path][0]
            yield Case(f"{path} {name} {value!r:.20}", line, (3, 5), fields(path, **{name: value}))


def indexes() -> Iterator[Case]:
    for what, edit in INDEX_EDITS.items():
        for place, line in ((A, FIRST), ("buf", f"{NEXT} er --buffer buf")):
            yield Case(f"{place}: {what}", line, (3,), lambda at, e=edit, p=place: e(at / p))
    for line in (f"buffer {A} -o out --size 8", f"distill {A} --teacher ctp -o out"):
        edit = INDEX_EDITS["captions swapped"]
        yield Case("captions swapped", line, (3,), lambda world, e=edit: e(world / A))


def rows() -> Iterator[Case]:
    def edited(change: Callable[[list[dict[str, Any]]], object]) -> Fault:
        def prepare(world: Path) -> None:
            found = [json.loads(one) for one in (world / "rows.ndjson").read_text().splitlines()]
            change(found)
            (world / "edited.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in found))

        return prepare

    yield Case("rows as they are", REPORT, (0,), edited(lambda found: found))
    for name in ("run", "task", "split", "method", "protocol", "gallery"):
        for value in ("x\x1b[31m", "\ud800", [1]):
            fault = edited(lambda found, n=name, v=value: found[0].update({n: v}))
            yield Case(f"{name} {value!r}", REPORT, (0, 3) if value == "x\x1b[31m" else (3,), fault)
    wrong: tuple[tuple[str, object], ...] = (
        ("step", -5), ("step", 10**9), ("step", 1.5), ("step", True), ("step", 10**30),
        ("task_step", -1), ("task_step", 10**9), ("seed", "0"), ("seed", 10**400),
        ("tasks", "text"), ("tasks", [None]), ("metrics", []), ("metrics", {"rm": "high"}),
        ("metrics", {"rm": 10**400}), ("metrics", {"rm": True}), ("schema", "vlcpctl.eval/2"),
        ("limit", "ten"), ("config", 3), ("data", 5),
    )  # fmt: skip
    for name, wrong_value in wrong:
        fault = edited(lambda found, n=name, v=wrong_value: found[0].update({n: v}))
        yield Case(f"{name} {wrong_value!r:.20}", REPORT, (3,), fault)
    other: dict[str, object] = {
        "n_images": 3, "data": "0" * 32, "limit": 10, "checkpoint": "0" * 32,
        "config": {"id": "0" * 32, "values": {"lr": 5}}, "options": {"duplicates": "other"},
    }  # fmt: skip
    for name, again in other.items():
        fault = edited(lambda found, n=name, v=again: found.append({**found[0], n: v}))
        yield Case(f"a row twice, once with another {name}", REPORT, (3,), fault)
    yield Case("a row twice", REPORT, (0,), edited(lambda found: found.append(found[0])))
    for what, data in {
        **NO_JSON,
        "NaN": '{"schema": "vlcpctl.eval/1", "metrics": {"rm": NaN}}',
        "1e999": '{"schema": "vlcpctl.eval/1", "metrics": {"rm": 1e999}}',
        "an integer of 5,000 digits": '{"schema": "vlcpctl.eval/1", "seed": ' + "1" * 5000 + "}",
        "a line of 40 MB": '{"schema": "vlcpctl.eval/1", "run": "' + "x" * 40_000_000 + '"}',
        "zeros": b"\0\0\0",
    }.items():
        yield Case(f"rows {what}", REPORT, (3,), written("edited.ndjson", data))


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


def sources() -> Iterator[Case]:
    good = b"".join(
        member(b"%03d.png" % n, make_image(n)) + member(b"%03d.txt" % n, b"a thing %d" % n)
        for n in range(12)
    )
    end, bad = bytes(1024), (2, 3, 6)
    tars: dict[str, bytes] = {
        **{f"size {size!r}": block(b"zzz.png", size) + good + end for size in (
            b"-0000001000\0", b"-1\0", b"\xff" * 12, b"\x80" + b"\x7f" * 11, b"abcdefghijk\0")},
        **{f"{record[:20]!r}": pax(record) + member(b"zzz.png", b"") + good + end for record in (
            b"size=-1", b"size=\xc2\xb2", b"size=" + b"9" * 5000, b"path=../../etc/x.png",
            b"path=a\0b.png", b"path=\x1b[31m.png", b"path=\xff\xfe.png")},
        "escape codes": member(b"\x1b[31mred.png", b"x") + good + end,
        "cut in a header": (good + end)[: len(good) - 700],
        "cut in a member": good[:552],
        "a checksum wrong": good.replace(b"000.txt", b"00x.txt", 1) + end,
        "a newline after the end": good + end + b"\n",
        "8 GB that are not there": block(b"x.png", b"77777777777\0") + good + end,
        "zeros": bytes(10240),
        "gzip": __import__("gzip").compress(good + end),
    }  # fmt: skip
    yield Case("tar: good", SPLIT, (0,), written("src/a.tar", good + end))
    for what, data in tars.items():
        yield Case(f"tar: {what}", SPLIT, bad, written("src/a.tar", data))

    def listed(name: str, text: str | bytes) -> Fault:
        def prepare(world: Path) -> None:
            for number in range(12):
                written(f"src/{number}.png", make_image(number))(world)
            written(f"src/{name}", text)(world)

        return prepare

    line = SPLIT.replace("src", "src/{}")
    pairs = [json.dumps({"image": f"{n}.png", "caption": f"a thing {n}"}) for n in range(12)]
    for what, more in {
        "good": pairs[0].replace("thing", "second thing"),
        "a deep path": '{"image": ' + BOMB,
        "half a surrogate": '{"image": "\\ud800.png", "caption": "x"}',
        "no caption": '{"image": "1.png", "caption": null}',
        "a number": '{"image": "1.png", "caption": 5}',
        "a directory": '{"image": ".", "caption": "x"}',
        "a device": '{"image": "/dev/zero", "caption": "x"}',
        "a NUL": '{"image": "a\\u0000b.png", "caption": "x"}',
        "a long name": '{"image": "' + "x" * 5000 + '", "caption": "x"}',
        "40 MB": '{"image": "1.png", "caption": "' + "x" * 40_000_000 + '"}',
        "no JSON": "hello",
    }.items():  # fmt: skip
        fault = listed("l.json", "[" + ",".join([*pairs, more]) + "]")
        yield Case(f"json: {what}", line.format("l.json"), (0,) if what == "good" else bad, fault)
    table = "image,caption\n" + "".join(f"{n}.png,a thing {n}\n" for n in range(12))
    for what, text in {
        "good": table, "equal columns": ",".join(["image"] * 100_000) + "\n",
        "an open quote": table + '1.png,"open\n', "a short row": table + "1.png\n",
        "no captions": "image,other\n1.png,x\n", "no rows": "image,caption\n", "empty": "",
    }.items():  # fmt: skip
        fault = listed("l.csv", text)
        yield Case(f"csv: {what}", line.format("l.csv"), (0,) if what == "good" else bad, fault)
    for name in ("a.tar", "a.csv", "a.jsonl", "a.parquet"):
        fault = linked(f"src/{name}")
        yield Case(f"{name}: the disk fails", line.format(name), (1,), fault, "Input/output error")
    yield Case("a bomb of 800 MB", line.format("n.parquet"), bad, bomb)
    yield Case("a link to itself", SPLIT, bad, lambda at: loop(at / "src"))


def bomb(world: Path) -> None:
    """A row group of 800 MB in 100 kB."""
    schema = pa.schema([("image", pa.binary()), ("caption", pa.string())])
    (world / "src").mkdir()
    with pq.ParquetWriter(world / "src/n.parquet", schema, compression="zstd") as file:
        table = [[bytes(200_000_000)] * 4, ["x"] * 4]
        file.write_table(pa.table(dict(zip(schema.names, table, strict=True)), schema))


def loop(directory: Path) -> None:
    directory.mkdir()
    (directory / "loop").symlink_to(directory)


def deletions() -> Iterator[Case]:
    receipt = {"schema": "vlcpctl.receipt/1", "state": "finished", "request": "0" * 32, "keys": []}
    line = "split pairs.parquet -o out --by all:x --not r.json"
    for what, data in {
        **NO_JSON,
        "pending": json.dumps({**receipt, "selectors": [], "state": "pending"}),
        "a key that is none": json.dumps({**receipt, "selectors": [], "keys": ["z" * 32]}),
        "no seal": json.dumps({**receipt, "selectors": [], "schema": "vlcpctl.stop-list/1"}),
    }.items():
        yield Case(f"a receipt {what}", line, (3,), written("r.json", data), "r.json")
    yield Case("no pair", "forget --where label=nosuch s", (3,), says="no pair", own="s")
    yield Case("all pairs", line.replace("r.json", "s"), (3,), says="no pair is left")


CASES = [
    *files_of_artifacts(), *manifests(), *indexes(), *rows(), *options(), *sources(), *deletions(),
]  # fmt: skip


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


@pytest.mark.parametrize("name", WRITERS)
def test_killed_and_run_again_it_ends_well(place: Path, name: str) -> None:
    line = f"$vlcpctl {WRITERS[name]} -q"
    ended = bash(place, f"{line} & p=$!; sleep 1.3; kill -9 $p; wait $p; {line}")
    assert ended.returncode == 0, ended.stderr
    assert not [one for one in listing(place) if "writing" in one]


@pytest.mark.parametrize("name", WRITERS)
def test_of_two_at_once_one_ends_well_or_both(place: Path, name: str) -> None:
    line = f"$vlcpctl {WRITERS[name]} -q"
    ended = bash(
        place,
        f"{line} & a=$!; {line} & b=$!; wait $a; x=$?; wait $b; y=$?; "
        f"[ $x = 0 ] || [ $y = 0 ] || exit 9; "
        f"for c in $x $y; do [ $c = 0 ] || [ $c = 4 ] || exit 8; done; {line}",
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", ["split", "train-step", "eval-retrieval", "forgetting-report"])
@pytest.mark.parametrize(("number", "code"), [("INT", 130), ("TERM", 143), ("HUP", 129)])
def test_a_signal_ends_it_without_a_traceback(
    place: Path, name: str, number: str, code: int
) -> None:
    line = f"$vlcpctl {WRITERS[name]} -q & p=$!; sleep 1; kill -{number} $p; wait $p"
    ended = bash(place, line)
    assert ended.returncode in {0, 75, code}, ended.stderr
    assert not any(mark in ended.stderr for mark in TRACES), ended.stderr


# A week runs lines, which need more than 12 files.
@pytest.mark.parametrize("name", sorted({*WRITERS} - {"update"}))
@pytest.mark.parametrize(
    "limit", ["ulimit -n 12", "trap '' XFSZ; ulimit -f 20", "ulimit -v 1200000"]
)
def test_a_limit_is_one_line(place: Path, name: str, limit: str) -> None:
    ended = bash(place, f"{limit}; timeout 60 $vlcpctl {WRITERS[name]} -q")
    assert ended.returncode in {0, 1}, ended.stderr
    assert not any(mark in ended.stderr for mark in TRACES), ended.stderr


@pytest.mark.parametrize("name", ["split", "eval-retrieval", "forgetting-report"])
@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_and_full_streams_do_not_stop_it(place: Path, name: str, streams: str) -> None:
    assert bash(place, f"$vlcpctl {WRITERS[name]} {streams}").returncode == 0
