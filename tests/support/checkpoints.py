"""Manifests of checkpoints that no command has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.manifest import write_manifest


def write_checkpoint_manifest(directory: Path, content: str, **facts: Any) -> None:
    """A complete manifest of these facts in a directory, with a content id of the test's choice.

    Each task has its place in `tasks` as its step, unless `task_steps` says otherwise.
    """
    tasks = facts.get("tasks", [])
    usual = {"run": "ctp", "method": "ctp", "identity": {}, "task_names": tasks}
    given = {**usual, "task_steps": list(range(len(tasks))), **facts}
    made = CheckpointManifest(**given)
    write_manifest(directory, "checkpoint", dict(made.identity), content, made.body())
