"""What a run continues from: the step of each task, and warnings about what may not be meant.

Pairs that are evaluated on, another stream, a stale buffer, negatives that match. All warnings but
those on negatives are recorded in the checkpoint. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Any

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import METHOD_CODE, config_id
from vlcpctl.core.errors import UsageError, some_names
from vlcpctl.data.loading.groups import pair_groups
from vlcpctl.data.loading.sampler import BufferSampler, PairSampler
from vlcpctl.data.tasks.task import Split, Task, shared_with_evaluation, stream_entries
from vlcpctl.methods.plugins.registry import facts_of
from vlcpctl.training.request import TrainRequest

# Pairs to be contrasted with, times this: the most training pairs whose negatives are looked at.
# Hashing the captions of a million takes seconds, and a task with so many rarely repeats what a
# queue holds.
_LOOKED_AT = 50


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

    def left_out(self) -> Iterator[str]:
        """A warning if tasks between the parent's last one and these were skipped."""
        if self.parent is None or self.parent.step is None or not self._same_stream:
            return
        known = [step for step in self.steps() if step is not None]
        first, last = self.parent.step + 1, min(known, default=0) - 1
        if first <= last:
            which = f"task {first}" if first == last else f"tasks {first} to {last}"
            yield f"the model was not trained on {which} of the stream"

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


def warnings_of(
    request: TrainRequest,
    history: TaskHistory,
    sampler: PairSampler,
    buffer: Task | None,
    reference: BufferSampler | None,
) -> tuple[str, ...]:
    """One line for everything that may not be intended and that the checkpoint records.

    Raises UsageError for a buffer with pairs of a later task of the stream, and BadInput if an
    index of the stream cannot be read.
    """
    parent, tasks = history.parent, history.tasks
    found = [*history.left_out(), *_leaks(tasks, sampler.splits, buffer)]
    if reference is not None:
        found += _shared(reference.buffer, tasks, "the pairs of --reference")
    # A run may start from a model of another run and stream: nothing of it is to be continued.
    is_start = parent is not None and history.start().get("start") == parent.content
    if parent is not None and parent.tasks and not is_start:
        found += [*_of_run(request, parent), *_of_stream(tasks, parent)]
    if buffer is not None:
        found += _of_buffer(tasks, buffer, parent, is_start=is_start)
        found += _of_features(request, buffer, parent)
    share, size = sampler.replay_share, request.settings.batch_size
    if share is not None and not round(share * size):
        found.append(
            f"no pair of the buffer is replayed: {share:g} of a batch of {size} rounds to 0; "
            "use a larger share or a larger --batch-size"
        )
    return tuple(found)


def _leaks(tasks: Sequence[Task], splits: Sequence[Split], buffer: Task | None) -> Iterator[str]:
    """Training pairs that are also evaluated, and replayed pairs that the tasks have too."""
    for task, split in zip(tasks, splits, strict=False):
        yield from _shared(split, [task], f"the training pairs of {task.slug}")
    if buffer is None:
        return
    held = splits[-1]
    for task, split in zip(tasks, splits, strict=False):
        yield from _shared(held, [task], "the pairs of --buffer")
        repeated = int(held.keys.among(split.keys).sum())
        if repeated:
            yield f"{repeated} of the pairs of --buffer are also in {task.slug}; they count once"


def _shared(pairs: Split, tasks: Sequence[Task], what: str) -> Iterator[str]:
    for task in tasks:
        for index, shared in shared_with_evaluation(pairs.keys, task):
            yield (
                f"{len(shared)} of {what} are also in split {index.stem!r} of {index.parent.name} "
                f"(such as key {shared[0]}): the model is evaluated on what it was trained on"
            )


def _of_run(request: TrainRequest, parent: CheckpointManifest) -> Iterator[str]:
    """What --previous was trained as, where this run is trained otherwise."""
    # A merged one has no method, and the seed of one of several checkpoints.
    names = ("run",) if parent.is_merged else ("run", "seed", "method")
    here = {"run": request.run, "seed": request.seed, "method": request.method_name}
    there = {name: getattr(parent, name) for name in names}
    other = [f"{n} {there[n]!r}, not {here[n]!r}" for n in names if there[n] != here[n]]
    if other:
        yield f"--previous is a checkpoint of another run: {'; '.join(other)}"
    before = parent.identity.get(METHOD_CODE) or {}
    for name, code in facts_of(request.methods).items():
        if name in before and before[name] != code:
            yield f"--previous was trained with other code of method {name!r}: it has changed since"


def _of_stream(tasks: Sequence[Task], parent: CheckpointManifest) -> Iterator[str]:
    """Tasks of another stream than the parent's that cannot be a continuation of it."""
    for task in tasks:
        stream = task.manifest.stream
        if None in {stream, parent.stream} or stream == parent.stream:
            continue
        entries = stream_entries(task)
        earlier = entries[: task.step or 0]
        new = [name for name, ids in earlier if set(ids).isdisjoint(parent.tasks)]
        if task.step and (new or not entries):
            which = f": {some_names(new)} of that stream" if new else "; its other tasks"
            yield (
                f"{task.slug} belongs to a different stream from the tasks that --previous was "
                f"trained on{which} {'was' if len(new) == 1 else 'were'} not learned; "
                "was the stream split again?"
            )


def _of_buffer(
    tasks: Sequence[Task], buffer: Task, parent: CheckpointManifest | None, *, is_start: bool
) -> Iterator[str]:
    """Tasks that only the buffer or only the model has seen, unless a run starts from the model."""
    seen = buffer.buffer.seen
    learned = parent.tasks if parent is not None else ()
    unknown = [one for one in seen if one not in learned]
    # An imported model is not known to have learned any task: its buffer may hold what it did.
    if unknown and (parent is None or learned):
        _refuse_later(tasks, buffer, unknown)
        if is_start:
            return
        # Nor is the start of a run: what its first buffer was filled with stays in later ones.
        before = list(takewhile(lambda one: one not in learned, seen))
        unknown = unknown[len(before) :] if parent and parent.start else unknown
    if unknown and (parent is None or learned):
        streams = {*(task.manifest.stream for task in tasks), parent and parent.stream}
        other = " of another stream" if buffer.manifest.stream not in streams else ""
        model = " that --previous was not trained on" if parent else ", but there is no --previous"
        yield f"--buffer contains pairs of {_tasks(len(unknown))}{other}{model}"
    names = dict(zip(learned, parent.task_names, strict=False)) if parent is not None else {}
    if parent and parent.start:  # what its start had learned may be in the first buffer, unnamed
        learned = list(dropwhile(lambda one: one not in seen, learned)) or learned
    lacking = [str(names.get(content, content)) for content in learned if content not in seen]
    if lacking and not is_start:
        whose = "its" if len(lacking) == 1 else "their"
        yield (
            f"--buffer was not updated with {_tasks(len(lacking))} that --previous was trained on "
            f"({some_names(lacking)}): {whose} pairs are not replayed"
        )


def _of_features(
    request: TrainRequest, buffer: Task, parent: CheckpointManifest | None
) -> Iterator[str]:
    """Stored features that another model than the parent added last, where a method uses them."""
    entry = buffer.buffer
    used = any(method.needs(first=False).stored_features for method in request.methods)
    made_by = entry.checkpoint if entry.features else None
    if not used or parent is None or made_by is None:
        return
    # A buffer that was not updated with the parent's last task is told of by `_of_buffer`.
    is_current = not parent.tasks or parent.tasks[-1] in entry.seen
    if is_current and made_by not in {parent.content, *(parent.parents or ())}:
        yield (
            "--buffer was last updated with the features of another checkpoint than --previous: "
            f"content {made_by}, not {parent.content}"
        )


def _refuse_later(tasks: Sequence[Task], buffer: Task, unknown: Sequence[str]) -> None:
    """Refuse a buffer with pairs of a task that comes later in the stream."""
    for task in tasks:
        later = stream_entries(task)[(task.step or 0) + 1 :]
        found = [name for name, ids in later if not set(ids).isdisjoint(unknown)]
        if found:
            raise UsageError(
                f"--buffer {buffer.path} contains pairs of {some_names(found)}, later in the "
                f"stream than {task.slug}; use the buffer made before this task"
            )


def _tasks(count: int) -> str:
    return "a task" if count == 1 else f"{count} tasks"


def negative_warnings(request: TrainRequest, sampler: PairSampler, steps: int) -> Iterator[str]:
    """A warning about true matches among the negatives of a run of so many steps, if it has them.

    None is looked for among those of --negatives distinct, nor in a large task.
    """
    batch, visited = request.settings.batch_size, sampler.visited_rows()
    queue = min(max(method.queued for method in request.methods), batch * (steps - 1))
    is_large = sum(map(len, visited)) > _LOOKED_AT * (batch + queue)
    if request.settings.negatives == "distinct" or is_large:
        return
    groups = zip(pair_groups(sampler.splits), visited, strict=True)
    every = np.concatenate([group[rows] for group, rows in groups])
    yield from match_warnings(batch, queue, np.unique(every, return_counts=True)[1])


def match_warnings(batch: int, queue: int, sizes_G: np.ndarray[Any, Any]) -> Iterator[str]:
    """A warning if there are fewer groups than pairs in batch and queue, and true matches."""
    matches = f"{true_matches(batch, queue, sizes_G):.1f}"
    if len(sizes_G) >= batch + queue or float(matches) == 0:
        return
    where = " (batch and queue)" if queue else ""
    yield (
        f"each of the {sizes_G.sum()} training pairs has {batch + queue - 1} negatives{where}, of "
        f"which about {matches} are true matches: the pair itself, or pairs "
        "that share its image or a caption; --negatives distinct leaves them out"
    )


def true_matches(batch: int, queue: int, sizes_G: np.ndarray[Any, Any]) -> float:
    """The expected number of negatives of a pair that are in its group, of these sizes.

    A batch has a pair once; a queue has pairs of several epochs, the same one included.
    """
    pairs = sizes_G.sum()
    mean = (sizes_G**2).sum() / pairs  # the size of the group of a pair
    return float((mean - 1) * (batch - 1) / max(pairs - 1, 1) + mean * queue / pairs)
