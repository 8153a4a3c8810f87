"""Tasks, buffers and streams that were edited; sources that changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from case import Table, cut, edit_json, flipped, removed, setting, written
from cases_state import BOMB
from world import A, B

TASK = Table("A task was edited")
BUFFER = Table("A replay buffer was edited")
STREAM = Table("A stream was edited")
SOURCE = Table("split runs again after its source changed")
LINEAGE = Table("Inputs that do not belong together")
_TRAIN = f"train-step {A} -o out --method seqf --preset tiny --model micro --batch-size 4 --steps 2"
_REPLAY = (
    f"train-step {B} -o out --method er --previous ctp --buffer buf --preset tiny "
    "--batch-size 4 --steps 2"
)


def column(path: str, name: str, change: Callable[[list[Any]], list[Any]]) -> Callable:
    """A fault that changes a column of a Parquet file."""

    def prepare(world: Path) -> None:
        table = pq.read_table(world / path)
        place = table.schema.get_field_index(name)
        field = table.schema.field(place).with_nullable(True)
        values = pa.array(change(table[name].to_pylist()), field.type)
        pq.write_table(table.set_column(place, field, values), world / path)

    return prepare


def rows(path: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """A fault that drops, repeats or reorders the rows of a Parquet file."""

    def prepare(world: Path) -> None:
        pq.write_table(change(pq.read_table(world / path)), world / path)

    return prepare


def first(value: object) -> Callable[[list[Any]], list[Any]]:
    """A change of a column that sets its first value."""
    return lambda values: [value, *values[1:]]


def index_faults(path: str) -> dict[str, Callable[[Path], object]]:
    """Faults of an index, by name."""
    shard = path.replace(".parquet", "-000000.tar")
    return {
        "captions swapped": column(path, "captions", lambda v: [v[1], v[0], *v[2:]]),
        "a caption edited": column(path, "captions", lambda v: [["edited"], *v[1:]]),
        "a caption null": column(path, "captions", lambda v: [[None], *v[1:]]),
        "no caption": column(path, "captions", lambda v: [[], *v[1:]]),
        "labels edited": column(path, "label", first("other")),
        "keys edited": column(path, "key", first("0" * 32)),
        "keys all equal": column(path, "key", lambda v: [v[0]] * len(v)),
        "a key with escape codes": column(path, "key", first("\x1b[31mred")),
        "rows dropped": rows(path, lambda t: t.slice(0, len(t) - 2)),
        "rows duplicated": rows(path, lambda t: pa.concat_tables([t, t.slice(0, 1)])),
        "rows reordered": rows(path, lambda t: t.take(list(range(len(t)))[::-1])),
        "zero rows": rows(path, lambda t: t.slice(0, 0)),
        "an offset below zero": column(path, "offset", first(-512)),
        "an offset past the end": column(path, "offset", first(10**12)),
        "a size below zero": column(path, "size", first(-1)),
        "a size past the end": column(path, "size", first(2**31 - 1)),
        "a shard with escape codes": column(path, "shard", first("\x1b[31mx")),
        "a shard with a NUL": column(path, "shard", first("x\0y")),
        "a shard elsewhere": column(path, "shard", first("../../etc/passwd")),
        "a shard that is a directory": column(path, "shard", first(".")),
        "a column removed": rows(path, lambda t: t.drop_columns(["sha256"])),
        "a column of another type": rows(path, _sizes_as_text),
        "not Parquet": written(path, b"PAR1 not Parquet PAR1"),
        "empty": written(path, b""),
        "cut short": cut(path),
        "removed": removed(path),
        "one bit flipped": flipped(path),
        "a shard a FIFO": lambda w: _as_fifo(w / shard),
        "a shard removed": removed(shard),
        "a shard cut short": cut(shard),
        "one bit of a shard flipped": flipped(shard, 0.05),
        "a FIFO": lambda w: _as_fifo(w / path),
    }


def _sizes_as_text(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("size")
    return table.set_column(place, "size", pc.cast(table["size"], pa.string()))


def _as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


TASK.add(
    "index of another task: FIFO",
    _TRAIN,
    3,
    prepare=lambda w: _as_fifo(w / B / "test.parquet"),
    says="not a regular file",
)
_EVAL = f"eval-retrieval {A} --split train --checkpoint ctp -o out"
for _what, _fault in index_faults(f"{A}/train.parquet").items():
    # Two steps read eight of the images: they may not need the one that was changed.
    _codes = (0, 3) if _what == "one bit of a shard flipped" else 3
    TASK.add(f"index: {_what}", _TRAIN, _codes, prepare=_fault)
    TASK.add(f"index: {_what}", f"check {A}", (0, 3) if "shard" in _what else 3, prepare=_fault)
    TASK.add(f"index: {_what}", f"check {A} --deep", 3, prepare=_fault)
for _what in ("captions swapped", "rows dropped", "labels edited", "a size below zero"):
    _fault = index_faults(f"{A}/train.parquet")[_what]
    for _line in (
        f"buffer {A} -o out --policy ring --size 8",
        f"distill {A} --teacher ctp -o out",
    ):
        TASK.add(f"index: {_what}", _line, 3, prepare=_fault)
for _what in ("captions swapped", "rows dropped", "labels edited"):
    _fault = index_faults(f"{A}/test.parquet")[_what]
    for _line in (
        f"eval-retrieval {A} --checkpoint ctp -o out",
        f"eval-zeroshot {A} --checkpoint ctp -o out",
        f"spatial-report {A} --checkpoint ctp --checkpoint ctp1 -o out",
    ):
        TASK.add(f"test index: {_what}", _line, 3, prepare=_fault)
for _what, _fault in index_faults("buf/train.parquet").items():
    _codes = (0, 3) if _what == "one bit of a shard flipped" else 3
    BUFFER.add(f"index: {_what}", _REPLAY, _codes, prepare=_fault)
_EDITS = {
    "slug ../../x": {"slug": "../../x"},
    "slug with escape codes": {"slug": "00-\x1b[31m"},
    "slug a number": {"slug": 3},
    "content edited": {"content": "0" * 32},
    "content null": {"content": None},
    "step 'zwei'": {"step": "zwei"},
    "step 10^9": {"step": 10**9},
    "step -5": {"step": -5},
    "step true": {"step": True},
    "splits null": {"splits": None},
    "splits a list": {"splits": [1]},
    "splits empty": {"splits": {}},
    "a split a number": {"splits": {"train": 1}},
    "images wrong": {"splits__train__images": 5},
    "images text": {"splits__train__images": "many"},
    "shards wrong": {"splits__train__shards": ["other.tar"]},
    "name a list": {"name": []},
    "labels a number": {"labels": 1},
    "identity null": {"identity": None},
}
for _what, _fields in _EDITS.items():
    _fault = edit_json(f"{A}/task.json", setting(**_fields))
    TASK.add(f"task.json: {_what}", _TRAIN, 3, prepare=_fault)
    TASK.add(f"task.json: {_what}", f"check {A} --deep", 3, prepare=_fault)
    TASK.add(f"task.json: {_what}", f"inspect {A}", (0, 3), prepare=_fault)
    if "slug" not in _what and "step" not in _what:
        _fault = edit_json("buf/task.json", setting(**_fields))
        BUFFER.add(f"task.json: {_what}", _REPLAY, 3, prepare=_fault)
for _what, _data in {
    "nested 100,000 deep": BOMB,
    "empty": "",
    "a list": "[]",
    "not UTF-8": b"\xff",
    "a lone surrogate": '{"schema": "vlcpctl.task/1", "name": "\\ud800"}',
}.items():
    for _line in (_TRAIN, f"check {A} --deep", f"inspect {A}"):
        TASK.add(f"task.json {_what}", _line, 3, prepare=written(f"{A}/task.json", _data))
    BUFFER.add(f"task.json {_what}", _REPLAY, 3, prepare=written("buf/task.json", _data))
    STREAM.add(f"stream.json {_what}", "check s", 3, prepare=written("s/stream.json", _data))
    STREAM.add(f"stream.json {_what}", "inspect s", 3, prepare=written("s/stream.json", _data))
STREAM.add(
    "a task's path leaves the stream",
    "check s",
    3,
    prepare=edit_json("s/stream.json", lambda v: v["tasks"][0].update(path="../../etc")),
)
STREAM.add(
    "a task of another content",
    "check s",
    3,
    prepare=edit_json("s/stream.json", lambda v: v["tasks"][0].update(content="0" * 32)),
)
STREAM.add("tasks null", "check s", 3, prepare=edit_json("s/stream.json", setting(tasks=None)))
STREAM.add("a task removed", "check s", 3, prepare=removed("s/02-*/task.json"))

_SPLIT = "split src.parquet -o again --by column:group --split-column split --label-column subgroup"


def _split_then(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Split a copy of the source with the program, then change the source."""

    def prepare(world: Path) -> None:
        import subprocess
        import sys

        (world / "src.parquet").write_bytes((world / "pairs.parquet").read_bytes())
        subprocess.run(
            [sys.executable, "-m", "vlcpctl", *_SPLIT.split()],
            cwd=world,
            check=True,
            capture_output=True,
        )
        change(world)

    return prepare


def _caption_in_the_middle(world: Path) -> None:
    path = world / "src.parquet"
    status = path.stat()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _touch(world: Path) -> None:
    os.utime(world / "src.parquet")


def _copy(world: Path) -> None:
    data = (world / "src.parquet").read_bytes()
    (world / "src.parquet").unlink()
    (world / "src.parquet").write_bytes(data)


SOURCE.add("nothing changed", _SPLIT, 0, prepare=_split_then(lambda world: world), out="again")
SOURCE.add("its time changed", _SPLIT, 0, prepare=_split_then(_touch), out="again")
SOURCE.add("an identical copy", _SPLIT, 0, prepare=_split_then(_copy), out="again")
SOURCE.add(
    "one bit in the middle, size and time as before",
    _SPLIT,
    4,
    prepare=_split_then(_caption_in_the_middle),
    out="again",
)


_TWO = "--preset tiny --batch-size 4 --steps 2"
for _what, _line, _codes in (
    ("--previous of another run name", f"{B} --previous ctp --method ctp --run other", 0),
    ("--previous of another method", f"{B} --previous ctp --method ewc", 0),
    ("--previous of another seed", f"{B} --previous seed1 --method ctp", 0),
    ("a buffer of a future task", f"{B} --previous ctp --method er --buffer future", (0, 2, 3, 5)),
    (
        "a buffer that lacks learned tasks",
        "s/02-animals-nature --previous ctp1 --method er --buffer buf",
        0,
    ),
    ("the buffer holds the task itself", f"{B} --previous ctp --method er --buffer buf1", 2),
    ("a task of another stream", "t/01-symbols --previous ctp --method ctp", 0),
    ("a task that was learned already", f"{A} --previous ctp --method ctp", (0, 2, 3, 5)),
    ("a step of the stream skipped", "s/04-travel-places --previous ctp --method ctp", 0),
):
    LINEAGE.add(
        _what,
        f"train-step {_line} -o out {_TWO} --dry-run",
        _codes,
        says="warning" if _codes == 0 else "",
        writes=False,
    )
LINEAGE.add(
    "a buffer update that skips a task",
    "buffer s/02-animals-nature -o out --policy reservoir --size 12 --previous buf",
    0,
    says="warning",
)
LINEAGE.add(
    "all is as it should be",
    f"train-step {B} --previous ctp --method er --run ctp --buffer buf -o out {_TWO} --dry-run",
    0,
    writes=False,
)
