"""The pairs of --reference, on which methods keep what the teacher can do. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from vlcpctl.core.errors import UsageError
from vlcpctl.data.loading.sampler import BufferSampler
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.training.config.request import TrainRequest


@dataclass(frozen=True)
class ReferenceSource:
    """The opened task, and its pairs batch by batch."""

    task: Task
    sampler: BufferSampler

    def __str__(self) -> str:
        """The line in the plan."""
        count = len(self.sampler.buffer)
        return f"reference: {self.sampler.size} pairs per step, of {count} in {self.task.path}"


def reference_source(request: TrainRequest, *, first: bool) -> ReferenceSource | None:
    """The pairs of --reference, in batches as large as those to learn, or all if there are fewer.

    None without it. Raises UsageError if a method needs it and it is missing, if none needs it, or
    if it has fewer pairs than there are processes, and BadInput if it is not a task with pairs.
    """
    users = [one.name for one in request.methods if one.needs(first=first).reference]
    if request.reference is None:
        if users:
            raise UsageError(
                f"method {users[0]} needs --reference: a task with pairs of what the model must "
                "not forget (a buffer is one, too); for a method without it, use ctp"
            )
        return None
    if not users:
        when = "in a first task" if first else f"with --method {request.method_name}"
        raise UsageError(f"--reference has no effect {when}; leave it out")
    task = open_task(request.reference)
    task.require("train")
    split = task.split("train")
    pairs = min(request.settings.batch_size, len(split))
    pairs -= pairs % request.nproc
    if not pairs:
        raise UsageError(
            f"--reference {task.path} has {len(split)} pairs, too few for {request.nproc} "
            "process(es); give a task with more"
        )
    return ReferenceSource(task, BufferSampler(split, pairs, request.drawn_seed, "reference"))
