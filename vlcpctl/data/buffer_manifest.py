"""Write a buffer's manifest: a task manifest with the settings of the update and its history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import write_manifest
from vlcpctl.data.buffer_request import NAME, Request
from vlcpctl.data.buffer_segments import Row
from vlcpctl.data.index import ContentId
from vlcpctl.data.manifests import TaskSummary, content_with


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What was written into the directory of a buffer."""

    seen: dict[str, int]  # task content id to its number of images
    rows: list[Row]  # of the index
    shard_rows: dict[str, int]  # number of samples in each tar, evicted ones included
    features: dict[str, Any] | None  # width, dtype and content id of the stored features


def write_buffer_manifest(directory: Path, request: Request, written: Contents) -> None:
    """Write the buffer's task.json into `directory`, whose tars are complete."""
    rows, shard_rows = written.rows, written.shard_rows
    train = {
        "images": len(rows),
        "captions": sum(len(row["captions"]) for row in rows),
        "shards": sorted(shard_rows),
        "bytes": sum((directory / shard).stat().st_size for shard in shard_rows),
        "content": _content(rows),
    }
    summary = TaskSummary(NAME, {"train": train}, _labels(rows))
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
            "seen": written.seen,
            "items": dict(Counter(str(row["task"]) for row in rows)),
            "shard_rows": shard_rows,
            "features": written.features,
        },
    }
    whole = content_with(summary.content, written.features)
    write_manifest(directory, "task", request.identity(), whole, body)


def _labels(rows: list[Row]) -> list[str]:
    return sorted({row["label"] for row in rows if row["label"] is not None})


def _settings(request: Request) -> dict[str, Any]:
    """The settings that the next update is checked against, or that evaluation rows report."""
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


def _content(rows: list[Row]) -> str:
    content = ContentId()
    content.add([row["key"] for row in rows], [row["label"] for row in rows])
    return content.hexdigest()
