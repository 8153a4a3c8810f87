"""A buffer's manifest, and the request that made it: a task manifest with settings and history."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import to_builtins

from vlcpctl.data.buffer.policies import CTP, NEEDS_FEATURES, PAPER
from vlcpctl.data.buffer.size import BufferSize
from vlcpctl.data.tasks.facts import BufferManifest, SplitManifest, StoredFeatures
from vlcpctl.data.tasks.manifests import (
    TaskSummary,
    content_with,
    file_facts,
)
from vlcpctl.data.tasks.task import Task
from vlcpctl.files.manifest import write_manifest

BUFFER_NAME = "buffer"  # a buffer's task name, and the key of its own section in the manifest


@dataclass(frozen=True, kw_only=True)
class BufferContents:
    """What was written into the directory of a buffer."""

    seen: dict[str, int]  # task content id to its number of images
    rows: pa.Table  # of the index, in its order
    content: str  # content id of the rows
    shard_rows: dict[str, int]  # number of samples in each tar, evicted ones included
    features: StoredFeatures | None
    warnings: tuple[str, ...] = ()  # about what it was updated from


def write_buffer_manifest(
    directory: Path, request: BufferRequest, contents: BufferContents
) -> None:
    """Write the buffer's task.json into `directory`, whose tars are complete."""
    rows, shard_rows = contents.rows, contents.shard_rows
    facts = file_facts(directory, "train", sorted(shard_rows))
    train = SplitManifest(
        images=len(rows),
        captions=int(pc.sum(pc.list_value_length(rows["captions"])).as_py() or 0),
        shards=tuple(sorted(shard_rows)),
        bytes=sum(facts["shard_bytes"]),
        content=contents.content,
        **facts,
    )
    labels = [label for label in rows["label"].unique().to_pylist() if label is not None]
    summary = TaskSummary(BUFFER_NAME, {"train": train}, sorted(labels))
    items = {one["values"]: one["counts"] for one in rows["task"].value_counts().to_pylist()}
    buffer = BufferManifest(
        policy=request.policy,
        variant=request.variant,
        size=request.size.text,
        of=request.size.of,
        kind=request.size.kind,
        count=request.size.count,
        share=request.size.share,
        seed=request.seed,
        checkpoint=request.checkpoint,
        seen=contents.seen,
        items=items,
        shard_rows=shard_rows,
        features=contents.features,
    )
    kept = request.kept_columns()
    body: dict[str, Any] = {
        "name": BUFFER_NAME,
        "slug": BUFFER_NAME,
        "step": None,
        "tasks_in_stream": request.task.manifest.tasks_in_stream,
        "stream": request.task.manifest.stream,
        "splits": to_builtins(summary.splits),
        "labels": summary.labels,
        "skipped": {},
        **({"kept_columns": kept} if kept else {}),
        "inputs": [one for one in (request.task.content, request.checkpoint) if one],
        BUFFER_NAME: to_builtins(buffer),
    }
    if contents.warnings:
        body["warnings"] = contents.warnings
    content = content_with(summary.content, contents.features)
    write_manifest(directory, "task", request.identity(), content, body)


@dataclass(frozen=True, kw_only=True)
class BufferRequest:
    """The inputs and settings of one buffer update; `previous` is None for a new buffer."""

    task: Task
    previous: Task | None
    policy: str
    size: BufferSize
    seed: int
    checkpoint: str | None = None  # content id of the model that computes the features
    variant: str = PAPER
    stores_features: bool = False
    candidates: int | None = None  # that herding and kmeans choose from; None: `most_considered`

    def identity(self) -> dict[str, Any]:
        """The settings that determine the result, compared when the command runs again."""
        return {
            "task": self.task.content,
            "previous": self.previous and self.previous.content,
            "policy": self.policy,
            "variant": self.variant,
            "size": self.size.text,
            "of": self.size.of,
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            # Content ids do not cover kept columns, so they are compared by themselves.
            "kept_columns": self.kept_columns(),
            "features": self.stores_features,
            **({} if self.candidates is None else {"candidates": self.candidates}),
        }

    def kept_columns(self) -> list[str]:
        """The columns that the buffer keeps: those of the previous one, and more of the task."""
        earlier = [] if self.previous is None else self.previous.kept_columns
        return list(dict.fromkeys([*earlier, *self.task.kept_columns]))

    def ranks_by(self) -> str:
        """The index column with the items' priority; the highest value is evicted first."""
        by_rank = self.policy in NEEDS_FEATURES or self.variant == CTP
        return "rank" if by_rank else "order"

    def seen(self) -> dict[str, int]:
        """The number of images of each task that the previous buffer has seen, by content id."""
        return {} if self.previous is None else self.previous.buffer.seen

    def shard_rows(self) -> dict[str, int]:
        """The number of samples in each tar of the previous buffer."""
        return {} if self.previous is None else self.previous.buffer.shard_rows
