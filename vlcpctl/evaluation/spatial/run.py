"""Angles between checkpoints: each embeds every task once, and is dropped after its last use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import Incompatible
from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.jobs import SearchCompute
from vlcpctl.evaluation.layout import LaidOut
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import Embedded
from vlcpctl.evaluation.spatial.angles import spatial
from vlcpctl.evaluation.spatial.plan import Request, SpatialPlan
from vlcpctl.models import encoders


def compare(request: Request, plan: SpatialPlan, means: SearchCompute) -> Iterator[dict[str, Any]]:
    """Yield each row as soon as it is measured.

    Raises Incompatible if two checkpoints have embeddings of different width, and Diverged for
    non-finite embeddings.
    """
    seen = _Seen(request, means)
    open_index = choose(means.backend, means.device)
    for number, turn in enumerate(plan.turns):
        before, after = seen.by(turn.before), seen.by(turn.after)
        _check_width(request, turn.before, turn.after, (before[0], after[0]))
        for cell in turn.cells:
            (task,) = cell.tasks
            yield cell.row(dataclasses.asdict(spatial(before[task], after[task], open_index)))
        later = plan.turns[number + 1 :]
        seen.keep({one.before for one in later} | {one.after for one in later})


@final
class _Seen:
    """The embeddings of the tasks by the checkpoints that are still needed."""

    def __init__(self, request: Request, means: SearchCompute) -> None:
        self.checkpoints, self.means = request.checkpoints, means
        self.sources = [LaidOut(task, request.split, request.limit) for task in request.tasks]
        self._embedded: dict[int, list[Embedded]] = {}

    def by(self, number: int) -> list[Embedded]:
        """The embeddings of each task by checkpoint `number`, computed at first use."""
        if number not in self._embedded:
            self._embedded[number] = self._embed(self.checkpoints[number])
        return self._embedded[number]

    def keep(self, numbers: set[int]) -> None:
        """Drop the embeddings of all other checkpoints, to bound memory."""
        self._embedded = {one: seen for one, seen in self._embedded.items() if one in numbers}

    def _embed(self, checkpoint: Path) -> list[Embedded]:
        encoder = encoders.load(checkpoint)
        encoder.module.to(torch_device(self.means.device)).eval()
        return [
            embed(
                encoder,
                source.split,
                source.layout,
                batch_size=self.means.batch_size,
                workers=self.means.workers,
                what=f"{checkpoint} on {source.task.slug}",
            )
            for source in self.sources
        ]


def _check_width(
    request: Request, before: int, after: int, embedded: tuple[Embedded, Embedded]
) -> None:
    """Refuse embeddings of different width: angles between them are not defined."""
    one, other = (seen.image_ID.shape[1] for seen in embedded)
    if one != other:
        raise Incompatible(
            f"{request.checkpoints[before]} has embeddings of {one} channels and "
            f"{request.checkpoints[after]} of {other}: angles between them are not defined"
        )
