"""Evaluate checkpoints on tasks by retrieval, one row at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vlcpctl.engine.cross_modal import CrossModalTasks
from vlcpctl.engine.evaluated import Evaluated, Measure, Note
from vlcpctl.engine.evaluation_plan import Job, Means, Request
from vlcpctl.engine.multi_modal import MultiModalTasks
from vlcpctl.engine.protocols import CROSS_MODAL, MULTI_MODAL
from vlcpctl.eval.search import choose

_TASKS: dict[str, type[CrossModalTasks] | type[MultiModalTasks]] = {
    CROSS_MODAL: CrossModalTasks,
    MULTI_MODAL: MultiModalTasks,
}


def evaluate(
    request: Request, jobs: list[Job], means: Means, note: Note
) -> Iterator[dict[str, Any]]:
    """Yield each row as soon as it is measured; save embeddings after a checkpoint's rows.

    Raises Diverged for non-finite embeddings.
    """
    tasks = _TASKS[request.protocol](request, choose(means.backend, means.device))
    for job in jobs:
        seen: Measure = tasks.seen_by(Evaluated(job, means, note))
        for cell in job.cells:
            yield cell.row(seen.measured(cell))
        if job.embeddings is not None:
            seen.save()
