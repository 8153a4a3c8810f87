"""One split of one task under evaluation, read once for all checkpoints."""

from __future__ import annotations

from functools import cached_property
from typing import final

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.evaluation.embedding_files import Samples
from vlcpctl.evaluation.search.gallery import Layout, lay_out
from vlcpctl.evaluation.search.items import Items, lay_out_items


@final
class EvalSplit:
    """A split of a task to embed.

    With a limit only its first samples, with `lowest` only those with so many lowest keys.
    """

    def __init__(self, task: Task, name: str, limit: int | None, lowest: int | None = None) -> None:
        self.task, self.name, self.limit, self.lowest = task, name, limit, lowest

    @cached_property
    def split(self) -> Split:
        """The open split."""
        return self.task.split(self.name, self.lowest)

    @cached_property
    def layout(self) -> Layout:
        """The distinct images and texts of the split, and which of them pair."""
        captions = (self.split.captions(row) for row in range(self._count))
        return lay_out(self.split.column("sha256")[: self._count], captions)

    @cached_property
    def items(self) -> Items:
        """The distinct pairs of an image with its first caption, and the samples' classes.

        Raises BadInput if a sample has no class label.
        """
        count = self._count
        classes = self.split.column("label")[:count]
        lacking = classes.count(None)
        if lacking:
            raise BadInput(
                f"{self.split.path}: {lacking} of {count} images have no class label, which "
                "multi-modal retrieval needs; leave them out, or use another --split"
            )
        first_captions = (self.split.captions(row)[0] for row in range(count))
        return lay_out_items(self.split.column("sha256")[:count], first_captions, classes)

    def samples(self) -> Samples:
        """The task, keys and labels of the samples, for saved embeddings."""
        return Samples(self.task.slug, self.split.keys, self.split.column("label"))

    @property
    def _count(self) -> int:
        return min(len(self.split), self.limit or len(self.split))
