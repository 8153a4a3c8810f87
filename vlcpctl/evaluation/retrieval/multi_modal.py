"""Multi-modal retrieval: fused image-text pairs retrieve others of their class.

Each task is fused once for all its galleries.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.evaluation.embedding import fuse
from vlcpctl.evaluation.planned_rows import Cell
from vlcpctl.evaluation.retrieval.plan import Request
from vlcpctl.evaluation.search.hits import Classed, find_hits
from vlcpctl.evaluation.search.index import OpenIndex
from vlcpctl.evaluation.search.items import GATHER_ITEMS, Fused, Items, lay_out_items
from vlcpctl.evaluation.session import Evaluated
from vlcpctl.metrics.average_precision import (
    DEFAULT_VARIANT,
    Ranked,
    count_touched,
    mean_average_precisions,
)
from vlcpctl.metrics.recall import CUTOFFS

TOP = max(CUTOFFS)


@final
class MultiModalTasks:
    """The tasks of a request, read once for all checkpoints."""

    def __init__(self, request: Request, open_index: OpenIndex) -> None:
        self.sources = [
            {name: _Source(task, name, request.limit) for name in request.splits}
            for task in request.tasks
        ]
        self.queries, self.gallery = request.splits[0], request.splits[-1]
        self.gather, self.open_index = GATHER_ITEMS[request.duplicates], open_index
        self.variant = request.map_variant or DEFAULT_VARIANT

    def seen_by(self, model: Evaluated) -> _MultiModal:
        """The measurements of one checkpoint on the tasks."""
        return _MultiModal(self, model)


class _Source:
    """One split of one task as items: each image with its first caption and its class."""

    def __init__(self, task: Task, split: str, limit: int | None) -> None:
        self.task, self.name, self.limit = task, split, limit

    @cached_property
    def split(self) -> Split:
        return self.task.split(self.name)

    @cached_property
    def items(self) -> Items:
        count = min(len(self.split), self.limit or len(self.split))
        classes = self.split.column("label")[:count]
        lacking = classes.count(None)
        if lacking:
            raise BadInput(
                f"{self.split.path}: {lacking} of {count} images have no class label, which "
                "multi-modal retrieval needs; leave them out, or use another --split"
            )
        first_captions = (self.split.captions(row)[0] for row in range(count))
        return lay_out_items(self.split.column("sha256")[:count], first_captions, classes)


class _MultiModal:
    """Implements `session.Measure`."""

    def __init__(self, tasks: MultiModalTasks, model: Evaluated) -> None:
        self.tasks, self.model = tasks, model
        self._fused: dict[tuple[int, str], Fused] = {}

    def measured(self, cell: Cell) -> dict[str, Any]:
        tasks = self.tasks
        queries = [self._part(number, tasks.queries) for number in cell.tasks]
        gallery = queries
        if tasks.gallery != tasks.queries:
            gallery = [self._part(number, tasks.gallery) for number in cell.tasks]
        with self.model.searching(cell):
            found = multi_modal(tasks.gather(queries, gallery), tasks.open_index, tasks.variant)
        return dataclasses.asdict(found)

    def save(self) -> None:
        raise AssertionError("check_options refuses --save-embeddings for this protocol")

    def _part(self, number: int, split: str) -> Fused:
        """The fused features of one split of a task, computed at first use."""
        if (number, split) not in self._fused:
            source = self.tasks.sources[number][split]
            place = f"{source.task.slug} ({split})"
            with self.model.timed(
                "embed", task=source.task.slug, split=split, pairs=len(source.items.texts)
            ):
                self._fused[number, split] = fuse(
                    self.model.fusion_encoder,
                    source.split,
                    source.items,
                    batch_size=self.model.means.batch_size,
                    workers=self.model.means.workers,
                    what=f"{self.model.job.checkpoint} on {place}",
                )
        return self._fused[number, split]


@dataclass(frozen=True)
class Result:
    """Mean average precisions in percent.

    `n_ties` queries would score differently if they won their ties; `n_alone` have no right answer
    in the gallery and score 0.
    """

    metrics: dict[str, float]
    n_queries: int
    n_gallery: int
    n_ties: int
    n_alone: int


def multi_modal(classed: Classed, open_index: OpenIndex, variant: str = DEFAULT_VARIANT) -> Result:
    """Search the gallery for every query, leaving the query itself out."""
    hits = find_hits(classed, open_index(classed.sides.gallery_GD), TOP)
    right_Q = classed.right_counts()
    worst, best = (
        Ranked(hit_QN, right_Q, classed.itself_Q >= 0) for hit_QN in (hits.worst, hits.best)
    )
    return Result(
        metrics=mean_average_precisions(worst, variant),
        n_queries=len(right_Q),
        n_gallery=len(classed.class_G),
        n_ties=count_touched(worst, best, variant),
        n_alone=int(np.count_nonzero(right_Q == 0)),
    )
