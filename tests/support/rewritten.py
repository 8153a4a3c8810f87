"""Artifacts from which `vlcpctl forget` has removed a pair."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import parse


def forget_pair(task: Path, *more: Path, split: str = "train", row: int = 0) -> str:
    """Remove the pair in a row of a task from its stream, and from more paths; its key."""
    key = open_task(task).split(split).keys[row]
    forget(DeletionRequest(conditions=parse([key]), paths=[task, *more]))
    return key
