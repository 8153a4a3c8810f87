"""A stream of tiny tasks, and runs on it with rows and ranks, made from small tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from support.eval_rows import current, row, write_rows

from vlcpctl.data.tasks.task import Task, open_stream
from vlcpctl.evaluation.rank_files import Named, plan_ranks
from vlcpctl.evaluation.rows import Row
from vlcpctl.metrics import accuracy, recall
from vlcpctl.testing.tiny_stream import make_stream

LEARNED = (1, 1, 1, 3)  # the rank of each test image and its text just after their task
LATER = (4, 2, 1, 1)  # and after any other task: two are forgotten, one is gained

RankOf = Callable[[int, int], Sequence[int]]  # step and task: the rank of each query


def usual_ranks(step: int, task: int) -> Sequence[int]:
    """The ranks of the model of a step on the four test images of a task."""
    return LEARNED if step == task else LATER


@dataclass(frozen=True)
class ForgottenWorld:
    """A stream with four test images in each task, files of rows and files of ranks."""

    stream: Path
    rows: Path
    ranks: Path

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the stream."""
        return open_stream(self.stream)

    def key(self, task: int, image: int) -> str:
        """The key of a test image."""
        return self.tasks[task].split("test").keys[image]

    def keys(self, task: int) -> list[str]:
        """The keys of the test images of a task."""
        return list(self.tasks[task].split("test").keys)


def make_world(
    root: Path,
    *,
    tasks: int = 3,
    run: str = "er",
    seed: int = 0,
    gallery: str = "own",
    rank_of: RankOf = usual_ranks,
    stream: Path | None = None,
) -> ForgottenWorld:
    """A run whose model of each step was evaluated by retrieval on all tasks up to it."""
    root.mkdir(parents=True, exist_ok=True)
    place = stream or make_stream(root / "stream", tasks, 4)
    world = ForgottenWorld(place, root / f"{run}-{seed}.ndjson", root / f"{run}-{seed}.parquet")
    rows, planned, tables = [], [], []
    for step in range(tasks):
        for task in range(step + 1):
            members = [task] if gallery == "own" else list(range(task + 1))
            rank = np.concatenate([rank_of(step, one) for one in members]).astype(np.int64)
            names = [world.tasks[one].slug for one in members]
            data = "+".join(world.tasks[one].content for one in members)
            where = {"task": names[0] if gallery == "own" else "merged", "tasks": names}
            about = {"run": run, "seed": seed, "step": step, "checkpoint": f"{run}-{step}-{seed}"}
            fields = {**about, **where, "gallery": gallery, "task_step": task, "data": data}
            rows.append(row(**fields, metrics=recall.recalls(rank, rank)))
            rows[-1] = current([rows[-1]], data=data)[0]
            planned.append(Row(tuple(members), _fields(fields), ()))
            tables.append((pa.array([key for one in members for key in world.keys(one)]), rank))
    write_rows(world.rows, rows)
    file = plan_ranks(world.ranks, planned, None, force=True)
    assert file is not None
    with file.opened():
        for one, (keys, rank) in zip(planned, tables, strict=True):
            first = Named(keys, pa.array([0] * len(keys), pa.int32()))
            for way, sides in (("i2t", (Named(keys), first)), ("t2i", (first, Named(keys)))):
                file.add(one, way, sides, _exact(rank))
    return world


def add_zeroshot(world: ForgottenWorld, root: Path, tasks: int = 2) -> ForgottenWorld:
    """The rows and ranks of the same run by zero-shot classification: two classes, "a" and "b"."""
    found = ForgottenWorld(world.stream, root / "zs.ndjson", root / "zs.parquet")
    rows, planned = [], []
    labels, classes = pa.array(["a", "a", "b", "b"]), pa.array(["a", "b"])
    codes = np.array([0, 0, 1, 1])
    for step in range(tasks):
        for task in range(step + 1):
            rank = np.array((1, 1, 1, 2) if step == task else (2, 2, 1, 1))
            where = {"run": "er", "step": step, "task_step": task, "checkpoint": f"er-{step}-0"}
            where |= {"task": found.tasks[task].slug, "data": found.tasks[task].content}
            where |= {"evaluator": "zeroshot", "protocol": "", "gallery": "own", "seed": 0}
            metrics = accuracy.accuracies(accuracy.tally(rank, codes, 2))
            rows += current([row(**where, metrics=metrics)], data=where["data"])
            planned.append((Row((task,), _fields(where), ()), rank, found.keys(task)))
    write_rows(found.rows, rows)
    file = plan_ranks(found.ranks, [one for one, _, _ in planned], None, force=True)
    assert file is not None
    with file.opened():
        for one, rank, keys in planned:
            exact = rank.astype(np.int64), 1 - codes, 3 - rank.astype(np.int64)
            file.add(one, "i2c", (Named(pa.array(keys)), Named(classes)), exact, labels)
    return found


def _fields(found: dict[str, object]) -> dict[str, object]:
    usual: dict[str, object] = {"split": "test", "evaluator": "retrieval"}
    usual |= {"protocol": "cross-modal", "limit": None, "options": {"duplicates": "unite"}}
    return usual | found


def _exact(rank: np.ndarray) -> tuple[np.ndarray, ...]:
    """Ranks whose best wrong answer is that of the next query."""
    wrong = (np.arange(len(rank)) + 1) % len(rank)
    return rank, wrong, np.where(rank > 1, 1, 2).astype(np.int64)
