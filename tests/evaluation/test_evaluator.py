"""The loop of evaluations: rows in the order of the plan, one session for each checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.evaluation.evaluator import Compute, Evaluator, Job, Plan, Session, evaluate
from vlcpctl.evaluation.planned_rows import PlannedRow

COMPUTE = Compute(device="cpu", batch_size=2, workers=0)


def planned(run: str, number: int) -> PlannedRow:
    return PlannedRow((number,), {"run": run, "checkpoint": f"id {run}"}, ("metrics", "n_images"))


@dataclass(frozen=True, kw_only=True)
class Count(Evaluator):
    """Two checkpoints with two rows each; counts what is computed, and records the calls."""

    checkpoints: tuple[Path, ...] = ()
    calls: list[str] = field(default_factory=list)

    def plan(self) -> Plan:
        jobs = [
            Job(
                Path(run),
                CheckpointManifest(identity={}, run=run, method="seqf"),
                [planned(run, 0), planned(run, 1)],
            )
            for run in "ab"
        ]
        return Plan(self, jobs)

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
    rows = list(evaluate(evaluator.plan(), COMPUTE, notes.append))
    assert evaluator.calls == [
        *("load a", "a 0", "a 1", "finish a"),
        *("load b", "b 0", "b 1", "finish b"),
    ]
    assert [list(row) for row in rows] == 4 * [["run", "metrics", "n_images", "checkpoint"]]
    told = [(one["run"], one["step"], one["what"], one["task"]) for one in notes]
    assert told == [(run, None, "embed", task) for run in "ab" for task in (0, 1)]


def test_rows_come_one_at_a_time() -> None:
    evaluator = Count()
    next(evaluate(evaluator.plan(), COMPUTE))
    assert evaluator.calls == ["load a", "a 0"]


def test_a_field_that_the_plan_does_not_name_is_an_error_of_the_program() -> None:
    with pytest.raises(AssertionError, match="n_texts"):
        planned("a", 0).complete({"metrics": {}, "n_texts": 1})
