"""The samples of one split of one task under evaluation, read once for all checkpoints."""

from __future__ import annotations

from functools import cached_property
from typing import final

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.evaluation.search.galleries import Captioned, Classified, Distinct


def require_split(task: Task, split: str) -> None:
    """Raise BadInput for a task without samples in a split."""
    if not task.counts.get(split):
        known = ", ".join(name for name, count in task.counts.items() if count)
        raise BadInput(f"{task.path} has no split {split!r} (it has: {known}); see --split")


@final
class Samples:
    """The samples of a split; with a limit only the first, with `lowest` those with lowest keys."""

    def __init__(self, task: Task, name: str, limit: int | None, lowest: int | None = None) -> None:
        self.task, self.name, self.limit, self.lowest = task, name, limit, lowest

    @cached_property
    def split(self) -> Split:
        """The open split."""
        return self.task.split(self.name, self.lowest)

    def __len__(self) -> int:
        return min(len(self.split), self.limit or len(self.split))

    @cached_property
    def captioned(self) -> Captioned:
        """The images and their captions."""
        captions = (self.split.captions(row) for row in range(len(self)))
        return Captioned.of(self.split.column("sha256")[: len(self)], captions)

    @cached_property
    def classified(self) -> Classified:
        """The pairs of an image with its first caption, and their classes.

        Raises BadInput if a sample has no class label.
        """
        classes = self.split.column("label")[: len(self)]
        lacking = classes.count(None)
        if lacking:
            raise BadInput(
                f"{self.split.path}: {lacking} of {len(self)} images have no class label, which "
                "multi-modal retrieval needs; leave them out, or use another --split"
            )
        firsts = (self.split.captions(row)[0] for row in range(len(self)))
        hashes = self.split.column("sha256")[: len(self)]
        return Classified(Distinct.of(zip(hashes, firsts, strict=True)), classes)
