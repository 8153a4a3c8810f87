"""Update a buffer with a task: read what it holds, choose, and write the next one beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.artifacts import MANIFESTS, new_directory, write_manifest
from vlcpctl.core.console import warn
from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.data.buffer_ctp import CTP, PAPER, allot_as_ctp, pick_as_ctp
from vlcpctl.data.buffer_policy import NEEDS_FEATURES, Allotment, Candidates, allot, pick
from vlcpctl.data.buffer_segments import Row, SegmentWriter, carry, next_number
from vlcpctl.data.buffer_size import Size
from vlcpctl.data.index import BUFFER_SCHEMA, ContentId, IndexWriter
from vlcpctl.data.manifests import TaskSummary
from vlcpctl.data.task import Split, Task, open_task
from vlcpctl.select.order import hash_order

NAME = "buffer"
Features = Callable[[Split, np.ndarray], np.ndarray]  # rows of a split to (N, D), L2-normalised


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one update is made of."""

    task: Task
    previous: Task | None
    policy: str
    size: Size
    seed: int
    checkpoint: str | None = None  # content id of the model that features come from
    variant: str = PAPER

    def identity(self) -> dict[str, Any]:
        """The settings that decide what the buffer holds."""
        return {
            "task": self.task.content,
            "previous": self.previous and self.previous.content,
            "policy": self.policy,
            "variant": self.variant,
            "size": self.size.written,
            "of": self.size.of,
            "seed": self.seed,
            "checkpoint": self.checkpoint,
        }

    def ranks_by(self) -> str:
        """The column of the index that says in which order held items are given up."""
        by_rank = self.policy in NEEDS_FEATURES or self.variant == CTP
        return "rank" if by_rank else "order"

    def held(self) -> dict[str, Any]:
        """What the previous buffer says of itself; the same fields of an empty one without it."""
        if self.previous is None:
            return {"seen": {}, "shard_rows": {}}
        held: dict[str, Any] = self.previous.manifest[NAME]
        return held


@dataclass(frozen=True)
class Plan:
    """Who stays and how many come; `fresh` are rows of the task that the buffer does not hold."""

    seen: dict[str, int]  # task content id to its number of images
    fresh: np.ndarray
    order: np.ndarray
    allotment: Allotment

    def __str__(self) -> str:
        """One line for the log."""
        stays, held = int(self.allotment.stays.sum()), len(self.allotment.stays)
        admitted, images = self.allotment.admitted, sum(self.seen.values())
        line = f"keeps {stays} of {held}, admits {admitted} of {len(self.fresh)}"
        if stays + admitted == images:
            return f"{line}: everything seen is kept"
        return f"{line}: {stays + admitted} of {images} images seen in {len(self.seen)} tasks"


def open_buffer(path: Path) -> Task:
    """Open a buffer; an error when it is a task of another kind."""
    found = open_task(path)
    if NAME not in found.manifest:
        raise BadInput(f"{path} is a task, not a buffer; 'vlcpctl buffer' makes one of it")
    return found


def plan_update(request: Request) -> Plan:
    """Divide the buffer; reads the indexes and no image."""
    split = request.task.split("train")
    seen = {**request.held()["seen"], request.task.content: len(split)}
    held_task = np.empty(0, dtype=np.int64)
    priority = np.empty(0)
    known: set[str] = set()
    if request.previous is not None:
        _check_continues(request, request.previous)
        held = request.previous.split("train")
        known.update(held.keys)
        places = {content: place for place, content in enumerate(seen)}
        held_task = np.array([places[one] for one in held.column("origin_task")], dtype=np.int64)
        priority = np.array(held.column(request.ranks_by()), dtype=np.float64)
    fresh = _unknown_rows(split.keys, known)
    order = hash_order(request.seed, (split.keys[row] for row in fresh))
    candidates = Candidates(list(seen.values()), held_task, priority, order, fresh)
    return Plan(seen, fresh, order, _allot(request, candidates))


def write_buffer(out: Path, request: Request, plan: Plan, features: Features) -> None:
    """Write the buffer that the plan describes; the previous one is left as it is."""
    split = request.task.split("train")
    picked = _picked(request, plan, lambda: features(split, plan.fresh))
    with new_directory(out, MANIFESTS["task"]) as directory:
        held = request.held()
        writer = SegmentWriter(directory, next_number(held["shard_rows"]))
        rows: list[Row] = []
        try:
            if request.previous is not None:
                previous = request.previous.split("train")
                rows += carry(previous, plan.allotment.stays, held["shard_rows"], writer)
            rows += _admit(request, split, plan, picked, writer)
            writer.close()
        finally:
            writer.abandon()
        _write_index(directory, rows)
        _write_manifest(directory, request, plan, rows, dict(writer.rows))


def _allot(request: Request, candidates: Candidates) -> Allotment:
    if request.variant == CTP:
        assert request.size.count is not None, "check_variant has seen to it"
        return allot_as_ctp(request.policy, request.size.count, candidates, request.seed)
    return allot(request.policy, request.size, candidates)


def _picked(request: Request, plan: Plan, features: Callable[[], np.ndarray]) -> np.ndarray:
    """The places among the fresh items of those to admit, best first."""
    if plan.allotment.picked is not None:
        return plan.allotment.picked
    count = plan.allotment.admitted
    if request.variant == CTP:
        return pick_as_ctp(request.policy, count, features)
    return pick(request.policy, count, plan.order, features, request.seed)


def _check_continues(request: Request, previous: Task) -> None:
    """Refuse a task seen before, and settings that the held items were not chosen by."""
    held, size = request.held(), request.size
    if request.task.content in held["seen"]:
        raise BadInput(f"{previous.path} has seen {request.task.path} already; give the next task")
    given = {name: request.identity()[name] for name in ("policy", "variant", "seed")}
    for name, wanted in {**given, "kind": size.kind}.items():
        if held[name] != wanted:
            option = "size" if name == "kind" else name
            raise Incompatible(
                f"{previous.path} was made with {option} {held[name]!r}, not {wanted!r}; "
                "use the same, or start a new buffer without --previous"
            )
    grows = (size.count or 0) > (held["count"] or 0) or (size.share or 0) > (held["share"] or 0)
    if grows and previous.counts["train"] < sum(held["seen"].values()):
        warn(f"{previous.path} was smaller: what it gave up of earlier tasks does not come back")


def _unknown_rows(keys: list[str], known: set[str]) -> np.ndarray:
    """The first row of every key that is not known."""
    rows = []
    for row, key in enumerate(keys):
        if key not in known:
            known.add(key)
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def _admit(
    request: Request, split: Split, plan: Plan, picked: np.ndarray, writer: SegmentWriter
) -> list[Row]:
    """Copy the picked items of the task, in the order in which they lie there."""
    numbers = plan.fresh[picked]
    ranks = np.arange(len(picked)) if plan.allotment.ranks is None else plan.allotment.ranks
    records: list[Row] = split.table.take(numbers).to_pylist()
    admitted = []
    for place in np.argsort(numbers).tolist():
        row = writer.add(split, int(numbers[place]), records[place], request.task.name)
        origin = {"origin_task": request.task.content, "rank": int(ranks[place])}
        admitted.append({**row, **origin, "order": float(plan.order[picked[place]])})
    return admitted


def _write_index(directory: Path, rows: list[Row]) -> None:
    # By key: equal items make an equal index whatever the history of the tars.
    rows.sort(key=lambda row: str(row["key"]))
    index = IndexWriter(directory / "train.parquet", BUFFER_SCHEMA)
    for row in rows:
        index.add(tuple(row[name] for name in BUFFER_SCHEMA.names))
    index.close()


def _write_manifest(
    directory: Path, request: Request, plan: Plan, rows: list[Row], shard_rows: dict[str, int]
) -> None:
    content = ContentId()
    content.add([row["key"] for row in rows], [row["label"] for row in rows])
    train = {
        "images": len(rows),
        "captions": sum(len(row["captions"]) for row in rows),
        "shards": sorted(shard_rows),
        "bytes": sum((directory / shard).stat().st_size for shard in shard_rows),
        "content": content.hexdigest(),
    }
    labels = {row["label"] for row in rows if row["label"] is not None}
    summary = TaskSummary(NAME, {"train": train}, sorted(labels))
    body = {
        "name": NAME,
        "slug": NAME,
        "step": None,
        "tasks_in_stream": request.task.manifest.get("tasks_in_stream"),
        "stream": request.task.manifest.get("stream"),
        "splits": summary.splits,
        "labels": summary.labels,
        "skipped": {},
        "inputs": [one for one in (request.task.content, request.checkpoint) if one],
        NAME: {
            **_settings(request),
            "seen": plan.seen,
            "items": dict(Counter(str(row["task"]) for row in rows)),
            "shard_rows": shard_rows,
        },
    }
    write_manifest(directory, "task", request.identity(), summary.content, body)


def _settings(request: Request) -> dict[str, Any]:
    """What the next update must agree with, or rows tell."""
    size = request.size
    return {
        "policy": request.policy,
        "variant": request.variant,
        "size": size.written,
        "of": size.of,
        "kind": size.kind,
        "count": size.count,
        "share": size.share,
        "seed": request.seed,
        "checkpoint": request.checkpoint,
    }
