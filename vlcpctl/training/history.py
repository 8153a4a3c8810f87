"""The stream step of each task in a run, also where a run continues in another stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import config_id
from vlcpctl.core.errors import UsageError
from vlcpctl.data.tasks.task import Task
from vlcpctl.files.inputs import MOST_TASKS


@dataclass(frozen=True)
class TaskHistory:
    """The tasks of a train-step, its run name, and the manifest of the checkpoint it starts from.

    A run that continues in another stream continues to count; a new run counts as the stream does.
    """

    tasks: Sequence[Task]
    run: str
    parent: CheckpointManifest | None

    def steps(self) -> list[int | None]:
        """The step of each task in the run; None for tasks that are not in a stream."""
        own = self._steps_in_stream()
        parent = self.parent
        if parent is None or not self._same_run or parent.step is None:
            return own
        # The parent may count ahead of its stream, if the run began in an earlier one.
        if self._same_stream:
            behind = parent.step - (parent.stream_step or 0)
            return [None if step is None else step + behind for step in own]
        return list(range(parent.step + 1, parent.step + 1 + len(own)))

    def earlier_steps(self) -> list[int | None]:
        """The step of each task the parent was trained on; None for those before this run."""
        if self.parent is None:
            return []
        steps = list(self.parent.task_steps)
        return steps if self._same_run or self._same_stream else [None] * len(steps)

    def start(self) -> dict[str, Any]:
        """Manifest fields of the checkpoint that the run started from: content id, and config id.

        It is an imported model, or one of another run that was trained on other streams. Empty if
        the run started with a new model.
        """
        parent = self.parent
        if parent is None:
            return {}
        if parent.origin is not None:
            return {"start": parent.content}
        # The start of merged weights is that of their checkpoints, whatever they are called.
        is_other = not parent.is_merged and not (self._same_run or self._same_stream)
        if parent.tasks and is_other:
            return {"start": parent.content, "start_config": config_id(parent)}
        return {"start": parent.start, "start_config": parent.start_config}

    def body(self) -> dict[str, Any]:
        """The facts of a checkpoint's manifest about its stream and all of its tasks."""
        own = [step for step in self._steps_in_stream() if step is not None]
        steps = [step for step in self.steps() if step is not None]
        parent = self.parent
        return {
            "stream": self._stream,
            "stream_step": max(own, default=None),
            "step": max(steps, default=len(self.earlier_steps())),
            "task_steps": [*self.earlier_steps(), *self.steps()],
            "tasks": [*(parent.tasks if parent else ()), *(task.id for task in self.tasks)],
            "task_names": [
                *(parent.task_names if parent else ()),
                *(task.name for task in self.tasks),
            ],
        }

    def require_room(self) -> None:
        """Raise UsageError if the run would count more tasks than a checkpoint can record."""
        last = self.body()["step"]
        if last >= MOST_TASKS:
            raise UsageError(
                f"the task would be step {last} of run {self.run!r}, and the last possible one is "
                f"{MOST_TASKS - 1}; continue under another --run"
            )

    def left_out(self) -> Iterator[str]:
        """A warning if tasks between the parent's last one and these were skipped."""
        if self.parent is None or self.parent.step is None or not self._same_stream:
            return
        known = [step for step in self.steps() if step is not None]
        first, last = self.parent.step + 1, min(known, default=0) - 1
        if first <= last:
            which = f"task {first}" if first == last else f"tasks {first} to {last}"
            yield f"the model was not trained on {which} of the stream"

    def out_of_order(self) -> Iterator[str]:
        """A warning if a task comes before one of its stream that the parent was trained on."""
        if self.parent is None or self.parent.step is None or not self._same_stream:
            return
        known = [step for step in self.steps() if step is not None]
        first, last = min(known, default=self.parent.step), self.parent.step
        if first < last:
            yield (
                f"task {first} of the stream comes before task {last}, which the model was already "
                "trained on: the tasks are learned out of order"
            )

    @property
    def _stream(self) -> str | None:
        """The stream of the tasks: of several, the one that the parent was trained on or the first.

        The tasks of the others have no step: two tasks may not have the same one.
        """
        streams = [task.manifest.stream for task in self.tasks]
        same = self.parent is not None and self.parent.stream in streams
        return self.parent.stream if self.parent is not None and same else streams[0]

    def _steps_in_stream(self) -> list[int | None]:
        """The step of each task in its stream; None for those that are not in `_stream`."""
        streams = [task.manifest.stream for task in self.tasks]
        if 1 < len(self.tasks) == len(set(streams)) and not self._same_stream:
            return list(range(len(self.tasks)))  # a stream of its own each: in their order
        return [
            task.step if stream == self._stream else None
            for task, stream in zip(self.tasks, streams, strict=True)
        ]

    @property
    def _same_run(self) -> bool:
        """Whether the parent belongs to this run, rather than being what the run starts from."""
        return self.parent is not None and bool(self.parent.tasks) and self.parent.run == self.run

    @property
    def _same_stream(self) -> bool:
        streams = {task.manifest.stream for task in self.tasks}
        return self.parent is not None and self.parent.stream in streams
