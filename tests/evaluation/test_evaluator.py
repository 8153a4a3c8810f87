"""The loop of evaluations: rows in the order of the plan, one session for each checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import UsageError
from vlcpctl.evaluation.evaluator import Evaluator, Session, evaluate
from vlcpctl.evaluation.rows import Row


def planned(run: str, number: int) -> Row:
    return Row((number,), {"run": run, "checkpoint": f"id {run}"}, ("metrics", "n_images"))


@dataclass(kw_only=True)
class Count(Evaluator):
    """Two checkpoints with two rows each; counts what is computed, and records the calls."""

    checkpoints: tuple[Path, ...] = ()
    calls: list[str] = field(default_factory=list)

    def plan(self) -> list[Session]:
        return [
            Session(
                self,
                Path(run),
                CheckpointManifest(identity={}, run=run, method="seqf"),
                [planned(run, 0), planned(run, 1)],
            )
            for run in "ab"
        ]

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        shared = session.once("shared", lambda: self.calls.append(f"load {session.checkpoint}"))
        assert shared is None
        with session.timed("embed", task=row.tasks[0]):
            self.calls.append(f"{session.checkpoint} {row.tasks[0]}")
        return {"n_images": 3, "metrics": {"acc1": 50.0}}

    def finish(self, session: Session) -> None:
        self.calls.append(f"finish {session.checkpoint}")


def test_each_checkpoint_has_one_session_and_is_finished_after_its_rows() -> None:
    evaluator, notes = Count(), []
    evaluator.note = notes.append
    found = evaluate(evaluator, evaluator.plan())
    rows = [next(found)]
    assert evaluator.calls == ["load a", "a 0"]  # rows come one at a time
    rows += found
    assert evaluator.calls == [
        *("load a", "a 0", "a 1", "finish a"),
        *("load b", "b 0", "b 1", "finish b"),
    ]
    assert [list(row) for row in rows] == 4 * [["run", "metrics", "n_images", "checkpoint"]]
    told = [(one["run"], one["step"], one["what"], one["task"]) for one in notes]
    assert told == [(run, None, "embed", task) for run in "ab" for task in (0, 1)]


def test_a_field_that_the_plan_does_not_name_is_an_error_of_the_program() -> None:
    with pytest.raises(AssertionError, match="n_texts"):
        planned("a", 0).complete({"metrics": {}, "n_texts": 1})


def test_the_precision_is_among_the_options_of_rows_unless_it_is_the_usual_one() -> None:
    assert Count().arithmetic_options() == {}
    assert Count(precision="bf16").arithmetic_options() == {"precision": "bf16"}
    with pytest.raises(UsageError):
        Count(tf32=True, device="cpu").arithmetic_options()
