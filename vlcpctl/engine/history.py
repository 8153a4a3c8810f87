"""At which step a model learns a task, also where each week brings a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vlcpctl.data.task import Task


def steps_of(tasks: Sequence[Task], parent: Mapping[str, Any] | None) -> list[int | None]:
    """The step of each task: its own in the stream of the parent (a manifest), else the next ones.

    So it goes on counting where each week is split on its own.
    """
    if parent is None or not parent["tasks"] or parent["step"] is None or _goes_on(tasks, parent):
        return [task.step for task in tasks]
    return list(range(parent["step"] + 1, parent["step"] + 1 + len(tasks)))


def notes(tasks: Sequence[Task], parent: Mapping[str, Any] | None) -> Iterator[str]:
    """What a person should know of the order of tasks before it is too late."""
    if parent is None or parent["step"] is None:
        return
    steps = steps_of(tasks, parent)
    if steps != [task.step for task in tasks]:
        yield f"of another stream than the tasks before: it counts as step {steps[0]}"
    known = [step for step in steps if step is not None]
    left_out = range(parent["step"] + 1, min(known, default=0))
    if left_out:
        yield f"the model has not learned task {', '.join(map(str, left_out))} of the stream"


def _goes_on(tasks: Sequence[Task], parent: Mapping[str, Any]) -> bool:
    return any(task.manifest.get("stream") == parent["stream"] for task in tasks)
