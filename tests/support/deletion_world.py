"""A directory in which one pair is stored everywhere, copies of it, and a search for its bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.program import run_program

from vlcpctl.data.splitting.leaving_out import KnownKeys
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.digests import digests_of
from vlcpctl.files.manifest import seal_of
from vlcpctl.files.outputs import Output
from vlcpctl.testing.tiny_stream import make_stream

NEXT = ("--method", "seqf", "--preset", "tiny", "--batch-size", "4", "--epochs", "1", "-q")
TRAIN = (*NEXT, "--model", "micro")


@dataclass(frozen=True)
class StoredPair:
    """A pair, and what must not be left of it."""

    key: str
    source_key: str
    sha256: str
    image: bytes
    captions: list[str]


def make_deletion_world(root: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """One of each kind of file: four tasks and buffers, three checkpoints, what is made of them."""
    stream = make_stream(root / "stream", 4, 8)
    tasks = sorted(path for path in stream.iterdir() if path.is_dir())

    def run(*words: object) -> None:
        ended = run_program(capfd, *words)
        assert ended.code == 0, ended.err

    run("train-step", tasks[0], "-o", root / "run/00", *TRAIN)
    previous: list[object] = []
    for number, task in enumerate(tasks):
        out = root / f"buffers/{number:02d}"
        how = ["--policy", "ring", "--size", 6, "--store-features"]
        run("buffer", task, "-o", out, *how, "--checkpoint", root / "run/00", *previous, "-q")
        previous = ["--previous", out]
    run(
        *("train-step", tasks[1], "-o", root / "run/01", *NEXT),
        *("--previous", root / "run/00", "--buffer", root / "buffers/00"),
    )
    run("train-step", tasks[3], "-o", root / "apart/00", *TRAIN, "--from-scratch")
    run("distill", tasks[0], "--teacher", root / "run/00", "-o", root / "targets", "-q")
    run(
        *("invert-texts", "--checkpoint", root / "run/00", "--buffer", root / "buffers/00"),
        *("-o", root / "texts", "--count", 12, "--iterations", 1, "-q"),
    )
    run(
        *("eval-retrieval", tasks[0], "--split", "train", "--checkpoint", root / "run/00", "-q"),
        *("--save-embeddings", root / "emb", "--save-ranks", root / "ranks.parquet"),
        *("-o", root / "rows.ndjson", "--embedding-cache", root / "cache"),
    )
    for to in ("hf", "clip-benchmark"):
        run("export", tasks[0], "--to", to, "-o", root / "exports" / to, "-q")
    parts = Output(root / "sharded").open_partial()
    identity = json.loads((root / "targets/targets.json").read_text())["identity"]
    (parts / "identity.json").write_text(json.dumps(identity))
    shutil.copy(root / "targets/images.npy", parts / "images-000000.npy")
    with (root / "stream/skipped.ndjson").open("w") as file:
        for pair in (pair_at(tasks[0], row) for row in range(8)):
            for place, detail in (
                (f"member a/{pair.source_key}.jpg", "no caption"),
                ("row 3", f"repeats an earlier pair (key {pair.key})"),
            ):
                file.write(json.dumps({"place": place, "detail": detail}) + "\n")
    (root / "week").mkdir()
    known = replace(KnownKeys.of(open_task(tasks[0])), content="f" * 32)
    known.write(root / "week/trimmed.parquet")
    _make_report(root / "report", tasks[0])
    # An output that --force replaced is kept beside the new one.
    run("buffer", tasks[0], "-o", root / "other", "--policy", "ring", "--size", 8, "-q")
    run("buffer", tasks[3], "-o", root / "other", "--policy", "ring", "--size", 8, "-q", "--force")
    return root


def _make_report(report: Path, task: Path) -> None:
    """A report that shows the pairs of a task, with pages as people may edit them."""
    (report / "forgotten").mkdir(parents=True)
    pairs = [pair_at(task, row) for row in range(8)]
    examples = [{"key": one.key, "caption": 0, "wrong": "a class"} for one in pairs]
    summary = {"content": "0" * 32, "identity": {}, "forgotten": {"tasks": [examples]}}
    text = json.dumps({"schema": "vlcpctl.report/1", **summary})
    (report / "summary.json").write_text(text)
    for name in ("report.html", "report.md", "week.html", "forgotten/00.html"):
        lines = [f"<li id={one.key}>{one.captions[0]}</li>\r\n".encode() for one in pairs]
        (report / name).write_bytes(b"".join([b"\xe9\n", *lines]))


def copy_of(world: Path, target: Path) -> Path:
    """A copy that has the same hard links."""
    subprocess.run(["cp", "-a", world, target], check=True)
    return target


def pair_at(task: Path, row: int, split: str = "train") -> StoredPair:
    """The pair in a row of a split."""
    opened = open_task(task).split(split)
    facts = {name: opened.column(name)[row] for name in ("key", "source_key", "sha256")}
    return StoredPair(**facts, image=opened.image(row), captions=opened.captions(row))


def evicted_pair(world: Path) -> StoredPair:
    """A pair that the second buffer has evicted, and still has in a tar."""
    first, second = (open_task(world / f"buffers/0{number}").split("train") for number in (0, 1))
    key = next(key for key in first.keys if key not in second.keys)
    return pair_at(world / "buffers/00", first.keys.index(key))


def held_pair(world: Path) -> StoredPair:
    """A pair that all buffers have."""
    splits = [open_task(world / f"buffers/0{number}").split("train") for number in range(4)]
    key = next(key for key in splits[0].keys if all(key in split.keys for split in splits))
    task = next(iter(sorted((world / "stream").glob("00-*"))))
    return pair_at(task, open_task(task).split("train").keys.index(key))


def add_column(task: Path, name: str, values: list[list[str]]) -> None:
    """Add a column to the train index, as `split --keep-columns` does."""
    path = task / "train.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column(name, pa.array(values, pa.list_(pa.string()))), path)
    manifest = json.loads((task / "task.json").read_text())
    manifest["splits"]["train"]["index"] = digests_of(task, [path.name])[path.name]
    (task / "task.json").write_text(json.dumps({**manifest, "seal": seal_of(manifest)}))


def traces(root: Path, pair: StoredPair) -> list[str]:
    """Where something of a pair is left, in raw bytes or in the values of Parquet files."""
    found = []
    texts = [pair.key, pair.sha256, *pair.captions]
    digits = [bytes.fromhex(text) for text in (pair.key, pair.sha256)]  # in files of rows
    wanted = [pair.image, *digits, *(text.encode() for text in texts)]
    for directory, _, names in os.walk(root):
        for path in (Path(directory) / name for name in names):
            data = path.read_bytes() if path.exists() else b""  # no link to nowhere
            if any(what in data for what in wanted):
                found.append(str(path.relative_to(root)))
            elif data.startswith(b"PAR1"):
                values = str(pq.read_table(path).to_pylist())
                found += [f"{path.relative_to(root)} (value)" for text in texts if text in values]
    return sorted(one for one in found if not one.startswith("receipts/"))


def vectors_of(root: Path, pair: StoredPair) -> list[np.ndarray]:
    """What the targets of a pair are, before it is removed."""
    row = pq.read_table(root / "targets/samples.parquet")["key"].to_pylist().index(pair.key)
    views = json.loads((root / "targets/targets.json").read_text())["views"]
    return list(np.load(root / "targets/images.npy")[row * views : (row + 1) * views])


def tree_bytes(root: Path) -> dict[str, bytes]:
    """Every file below a directory, except those that name the command that locked them last."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "made-by-vlcpctl"
    }
