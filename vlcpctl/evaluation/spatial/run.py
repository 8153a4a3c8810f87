"""Angles between checkpoints: each embeds every task once, and is dropped after its last use."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, final

from vlcpctl.core.errors import Incompatible
from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import Embeddings
from vlcpctl.evaluation.session import Session
from vlcpctl.evaluation.spatial.angles import spatial
from vlcpctl.evaluation.spatial.plan import SpatialPlan
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.models.encoders import SavedEncoder


@final
class SpatialEvaluator(Evaluator):
    """Angles between the embeddings of two checkpoints, on each task of a plan."""

    def __init__(self, plan: SpatialPlan, compute: Compute) -> None:
        request = plan.request
        self.sources = [EvalSplit(task, request.split, request.limit) for task in request.tasks]
        self.backend = choose(compute.backend, compute.device)
        self._left = list(plan.jobs)
        self._embedded: dict[Path, list[Embeddings]] = {}

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """See `Evaluator`; raises Incompatible for embeddings of different width."""
        earlier, later = session.job.before, session.checkpoint
        assert earlier is not None
        before, after = (self._by(path, session.compute) for path in (earlier, later))
        _check_width((earlier, before[0]), (later, after[0]))
        (task,) = row.tasks
        return dataclasses.asdict(spatial(before[task], after[task], self.backend))

    def finish(self, session: Session) -> None:
        """Drop the embeddings that no later comparison needs, to bound memory."""
        self._left.remove(session.job)
        needed = {path for job in self._left for path in (job.before, job.checkpoint)}
        self._embedded = {path: own for path, own in self._embedded.items() if path in needed}

    def _by(self, checkpoint: Path, compute: Compute) -> list[Embeddings]:
        """The embeddings of each task by a checkpoint, computed at first use."""
        if checkpoint not in self._embedded:
            encoder = compute.pool.load(SavedEncoder(checkpoint), compute.device)
            self._embedded[checkpoint] = [
                embed(encoder, source, checkpoint, compute) for source in self.sources
            ]
        return self._embedded[checkpoint]


def _check_width(before: tuple[Path, Embeddings], after: tuple[Path, Embeddings]) -> None:
    """Refuse embeddings of different width: angles between them are not defined."""
    one, other = (embedded.image_ID.shape[1] for _, embedded in (before, after))
    if one != other:
        raise Incompatible(
            f"{before[0]} has embeddings of {one} channels and {after[0]} of {other}: angles "
            "between them are not defined"
        )
