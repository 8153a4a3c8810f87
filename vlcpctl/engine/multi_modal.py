"""Multi-modal retrieval of a checkpoint: each task is fused once for all its galleries."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, final

from vlcpctl.core.errors import BadInput
from vlcpctl.data.task import Split, Task
from vlcpctl.engine.embedding import fuse
from vlcpctl.engine.evaluated import Evaluated
from vlcpctl.engine.evaluation_plan import Request
from vlcpctl.eval.cells import Cell
from vlcpctl.eval.items import GATHER_ITEMS, Fused, Items, lay_out_items
from vlcpctl.eval.multi_modal import multi_modal
from vlcpctl.eval.search import OpenIndex
from vlcpctl.metrics.average_precision import DEFAULT_VARIANT


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
    """Implements `evaluated.Measure`."""

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
