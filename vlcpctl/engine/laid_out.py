"""One split of one task, and what in it is identical: read once for all checkpoints."""

from __future__ import annotations

from functools import cached_property
from typing import final

from vlcpctl.data.task import Split, Task
from vlcpctl.eval.embedding_files import Samples
from vlcpctl.eval.gallery import Layout, lay_out


@final
class LaidOut:
    """A split as what embeds it needs it; with a limit, its first samples alone."""

    def __init__(self, task: Task, split: str, limit: int | None) -> None:
        self.task, self.name, self.limit = task, split, limit

    @cached_property
    def split(self) -> Split:
        """The open split."""
        return self.task.split(self.name)

    @cached_property
    def layout(self) -> Layout:
        """Its distinct images and texts."""
        count = min(len(self.split), self.limit or len(self.split))
        captions = (self.split.captions(row) for row in range(count))
        return lay_out(self.split.column("sha256")[:count], captions)

    def samples(self) -> Samples:
        """What files of embeddings say of its samples."""
        return Samples(self.task.slug, self.split.keys, self.split.column("label"))
