"""The loop of every evaluation: each checkpoint is loaded once, and its rows measured in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from vlcpctl.evaluation.jobs import Compute, Plan
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.session import Note, Session


class Evaluator(Protocol):
    """What one kind of evaluation computes; made of its plan, and used for all checkpoints.

    A new one needs a plan (`Plan`), this class, and a command that calls `evaluate_to`.
    """

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """The measured fields of a row, by name, for the checkpoint of the session."""
        ...

    def finish(self, session: Session) -> None:
        """Called after the last row of a checkpoint; does nothing unless overridden."""
        return


def evaluate(
    plan: Plan, evaluator: Evaluator, compute: Compute, note: Note
) -> Iterator[dict[str, Any]]:
    """Yield each row as soon as it is measured; `note` is called with timings.

    Raises what the evaluator raises: Diverged for non-finite embeddings, for instance.
    """
    for job in plan.jobs:
        session = Session(job, compute, note)
        for row in job.rows:
            yield row.complete(evaluator.measure(session, row))
        evaluator.finish(session)
