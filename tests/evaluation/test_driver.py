"""The loop of evaluations: rows in the order of the plan, one session for each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.evaluation.driver import Evaluator, evaluate
from vlcpctl.evaluation.jobs import Compute, Job
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.session import Session

COMPUTE = Compute(device="cpu", batch_size=2, workers=0)


class Pairs:
    """A plan of two checkpoints with two rows each."""

    def __init__(self) -> None:
        self.jobs = [
            Job(
                Path(run),
                CheckpointManifest(identity={}, run=run, method="seqf"),
                [planned(run, 0), planned(run, 1)],
            )
            for run in "ab"
        ]

    def lines(self) -> Iterator[str]:
        yield from (job.label for job in self.jobs)


def planned(run: str, number: int) -> PlannedRow:
    return PlannedRow((number,), {"run": run, "checkpoint": f"id {run}"}, ("metrics", "n_images"))


class Count(Evaluator):
    """Counts what is computed, not reused, and records the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        shared = session.once("shared", lambda: self.calls.append(f"load {session.checkpoint}"))
        assert shared is None
        with session.timed("embed", task=row.tasks[0]):
            self.calls.append(f"{session.checkpoint} {row.tasks[0]}")
        return {"n_images": 3, "metrics": {"acc1": 50.0}}

    def finish(self, session: Session) -> None:
        self.calls.append(f"finish {session.checkpoint}")


def test_each_checkpoint_has_one_session_and_is_finished_after_its_rows() -> None:
    evaluator, notes = Count(), []
    rows = list(evaluate(Pairs(), evaluator, COMPUTE, notes.append))
    assert evaluator.calls == [
        *("load a", "a 0", "a 1", "finish a"),
        *("load b", "b 0", "b 1", "finish b"),
    ]
    assert [list(row) for row in rows] == 4 * [["run", "metrics", "n_images", "checkpoint"]]
    told = [(one["run"], one["step"], one["what"], one["task"]) for one in notes]
    assert told == [(run, None, "embed", task) for run in "ab" for task in (0, 1)]


def test_rows_come_one_at_a_time() -> None:
    evaluator = Count()
    next(evaluate(Pairs(), evaluator, COMPUTE, lambda timing: None))
    assert evaluator.calls == ["load a", "a 0"]


def test_a_field_that_the_plan_does_not_name_is_an_error_of_the_program() -> None:
    with pytest.raises(AssertionError, match="n_texts"):
        planned("a", 0).complete({"metrics": {}, "n_texts": 1})
