"""One split of one task with its distinct images and texts, read once for all checkpoints."""

from __future__ import annotations

from functools import cached_property
from typing import final

from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.evaluation.embedding_files import Samples
from vlcpctl.evaluation.search.gallery import Layout, lay_out


@final
class LaidOut:
    """A split of a task to embed; with a limit, only its first samples."""

    def __init__(self, task: Task, split: str, limit: int | None) -> None:
        self.task, self.name, self.limit = task, split, limit

    @cached_property
    def split(self) -> Split:
        """The open split."""
        return self.task.split(self.name)

    @cached_property
    def layout(self) -> Layout:
        """The distinct images and texts of the split, and which of them pair."""
        count = min(len(self.split), self.limit or len(self.split))
        captions = (self.split.captions(row) for row in range(count))
        return lay_out(self.split.column("sha256")[:count], captions)

    def samples(self) -> Samples:
        """The task, keys and labels of the samples, for saved embeddings."""
        return Samples(self.task.slug, self.split.keys, self.split.column("label"))
