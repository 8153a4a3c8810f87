"""The manifest of merged weights: the tasks of all checkpoints, in their oldest versions."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.checkpoints.checkpoint import ParentCheckpoint
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.merge_rules import Average
from vlcpctl.checkpoints.merging import MergeInputs, manifest_of


def _parent(task: str) -> ParentCheckpoint:
    made = CheckpointManifest(
        run="r",
        method="seqf",
        identity={},
        content=f"model of {task}",
        tasks=[task],
        task_names=["week"],
        task_steps=[0],
        step=0,
    )
    return ParentCheckpoint(Path(task), made)


def test_tasks_learned_side_by_side_count_one_after_the_other() -> None:
    """Each is the first of a stream of its own; one that several have learned counts once."""
    models = tuple(_parent(task) for task in ("one", "other", "one", "third"))
    found = manifest_of(MergeInputs(models), Average(), "r")
    assert list(found.tasks) == ["one", "other", "third"]
    assert (list(found.task_steps), found.step) == ([0, 1, 2], 2)
