"""Write the manifest of a task; compute the ids of tasks and streams."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from vlcpctl.data.tasks.facts import SplitManifest, StoredFeatures
from vlcpctl.data.tasks.rows import rows_path
from vlcpctl.files.digests import digests_of
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import write_manifest

_SLUG_LENGTH = 40


@dataclass
class TaskSummary:
    """A finished task, before its position in the stream is known."""

    name: str
    splits: dict[str, SplitManifest]
    labels: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """The content id of the task's data."""
        return content_id(
            {
                "name": self.name,
                "splits": {name: split.content for name, split in self.splits.items()},
            }
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """Images, captions and bytes per split, for the stream's manifest."""
        kept = ("images", "captions", "bytes")
        return {
            name: {field: getattr(split, field) for field in kept}
            for name, split in self.splits.items()
        }


def file_facts(directory: Path, split: str, shards: Sequence[str]) -> dict[str, Any]:
    """What is recorded of a split's files: digests of index and file of rows, size of each tar.

    The images in a tar are verified by their sha256, which the index has.
    """
    index = f"{split}.parquet"
    rows = rows_path(Path(index)).name
    digests = digests_of(directory, [index, rows])
    return {
        "index": digests[index],
        "rows": digests[rows],
        "shard_bytes": [(directory / shard).stat().st_size for shard in shards],
    }


def content_with(content: str, features: StoredFeatures | None) -> str:
    """The content id of a task, including the features stored with it, if any."""
    if features is None:
        return content
    return content_id({"task": content, "features": features.content})


def digits_for(tasks: int) -> int:
    """How many digits number the tasks of a stream so that their names sort: at least two.

    >>> digits_for(3), digits_for(100), digits_for(101)
    (2, 2, 3)
    """
    return max(2, len(str(tasks - 1)))


def slug(step: int, name: str, digits: int = 2) -> str:
    """A directory name: the position in the stream, and the task's name in safe characters.

    >>> slug(2, "Animals & Nature"), slug(0, "food/health"), slug(7, "week", digits=3)
    ('02-animals-nature', '00-food-health', '007-week')
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_SLUG_LENGTH].strip("-")
    return f"{step:0{digits}d}-{words or 'task'}"


def stream_content(tasks: list[TaskSummary]) -> str:
    """The content id of a stream, which depends on its tasks and their order."""
    return content_id({"tasks": [task.content for task in tasks]})


def write_task_manifest(
    directory: Path,
    task: TaskSummary,
    identity: dict[str, Any],
    *,
    step: int | None,
    more: dict[str, Any],
) -> None:
    """Write task.json; `more` has the fields that only a stream's task, or only a buffer, has.

    The directory has the name that it has in the stream: it is the task's slug.
    """
    body = {
        "name": task.name,
        "slug": directory.name,
        "step": step,
        "splits": to_builtins(task.splits),
        "labels": task.labels,
        "skipped": task.skipped,
        **more,
    }
    write_manifest(directory, "task", identity, task.content, body)
