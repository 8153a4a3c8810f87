"""Evaluate checkpoints on tasks by retrieval, one row at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vlcpctl.evaluation.jobs import RetrievalJob, SearchCompute
from vlcpctl.evaluation.retrieval.cross_modal import CrossModalTasks
from vlcpctl.evaluation.retrieval.multi_modal import MultiModalTasks
from vlcpctl.evaluation.retrieval.plan import CROSS_MODAL, MULTI_MODAL, Request
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.session import Evaluated, Measure, Note

_TASKS: dict[str, type[CrossModalTasks] | type[MultiModalTasks]] = {
    CROSS_MODAL: CrossModalTasks,
    MULTI_MODAL: MultiModalTasks,
}


def evaluate(
    request: Request, jobs: list[RetrievalJob], means: SearchCompute, note: Note
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
