"""Possible mistakes in what a train-step continues from: warnings, and errors for clear ones.

The warnings are shown with the plan and recorded in the checkpoint. Torch-free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import METHOD_CODE
from vlcpctl.core.errors import UsageError, some_names
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import Split, Task, shared_with_evaluation, stream_entries
from vlcpctl.methods.plugins.source import facts_of
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.task_history import TaskHistory

# Names that 'split' gives to tasks of every stream: the same name does not mean the same task.
_NUMBERED = re.compile(r"(part|classes)-\d+")


def lineage_warnings(
    request: TrainRequest,
    history: TaskHistory,
    splits: Sequence[Split],
    buffer: Task | None,
    reference: Split | None = None,
) -> tuple[str, ...]:
    """One line for everything about --previous and --buffer that may not be intended.

    `splits` are the opened training splits of the tasks and, last, of the buffer. Raises
    UsageError for a buffer with pairs of a later task of the stream, and BadInput if an index of
    the stream cannot be read.
    """
    parent, tasks = history.parent, history.tasks
    found = [*history.left_out(), *history.out_of_order(), *_of_pairs(tasks, splits, buffer)]
    if reference is not None:
        for task in tasks:
            found += _leaks(reference.keys, task, "the pairs of --reference")
    if parent is not None and parent.tasks:
        found += [*_of_run(request, parent), *_of_stream(tasks, parent)]
    if buffer is not None:
        found += [*_of_buffer(tasks, buffer, parent), *_of_features(request, buffer, parent)]
    return tuple(found)


def _of_run(request: TrainRequest, parent: CheckpointManifest) -> Iterator[str]:
    """What --previous was trained as, where this run is trained otherwise."""
    here = {"run": request.run, "seed": request.seed, "method": request.method_name}
    there = {"run": parent.run, "seed": parent.seed, "method": parent.method}
    if parent.is_merged:  # it has no method, and the seed of one of several checkpoints
        here, there = {"run": request.run}, {"run": parent.run}
    other = [
        f"{name} {there[name]!r}, not {value!r}"
        for name, value in here.items()
        if there[name] != value
    ]
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
        is_grown = bool(task.step and entries and not new)
        if task.step and not is_grown:
            which = f": {some_names(new)} of that stream" if new else "; its other tasks"
            yield (
                f"{task.slug} belongs to a different stream from the tasks that --previous was "
                f"trained on{which} {'was' if len(new) == 1 else 'were'} not learned; "
                "was the stream split again?"
            )
        elif task.name in parent.task_names and not (is_grown or _NUMBERED.fullmatch(task.name)):
            yield (
                f"--previous was trained on a task {task.name!r} of another stream; "
                "was the stream split again?"
            )


def _of_buffer(
    tasks: Sequence[Task], buffer: Task, parent: CheckpointManifest | None
) -> Iterator[str]:
    """Tasks that only the buffer or only the model has seen."""
    seen = buffer.buffer.seen
    learned = parent.tasks if parent is not None else ()
    unknown = [one for one in seen if one not in learned]
    # An imported model is not known to have learned any task: its buffer may hold what it did.
    if unknown and (parent is None or learned):
        _refuse_later(tasks, buffer, unknown)
        # Nor is the start of a run: what its first buffer was filled with stays in later ones.
        before = list(takewhile(lambda one: one not in learned, seen))
        unknown = unknown[len(before) :] if parent and parent.start else unknown
    if unknown and (parent is None or learned):
        streams = {*(task.manifest.stream for task in tasks), parent and parent.stream}
        other = " of another stream" if buffer.manifest.stream not in streams else ""
        model = " that --previous was not trained on" if parent else ", but there is no --previous"
        yield f"--buffer contains pairs of {_tasks(len(unknown))}{other}{model}"
    names = dict(zip(learned, parent.task_names, strict=False)) if parent is not None else {}
    lacking = [str(names.get(content, content)) for content in learned if content not in seen]
    if lacking:
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


def _of_pairs(tasks: Sequence[Task], splits: Sequence[Split], buffer: Task | None) -> Iterator[str]:
    """Training pairs that are also evaluated, and replayed pairs that the tasks have too."""
    for task, split in zip(tasks, splits, strict=False):
        yield from _leaks(split.keys, task, f"the training pairs of {task.slug}")
    if buffer is None:
        return
    held = splits[-1].keys
    for task, split in zip(tasks, splits, strict=False):
        yield from _leaks(held, task, "the pairs of --buffer")
        repeated = int(held.among(split.keys).sum())
        if repeated:
            yield f"{repeated} of the pairs of --buffer are also in {task.slug}; they count once"


def _leaks(keys: Keys, task: Task, what: str) -> Iterator[str]:
    for index, shared in shared_with_evaluation(keys, task):
        yield (
            f"{len(shared)} of {what} are also in split {index.stem!r} of {index.parent.name} "
            f"(such as key {shared[0]}): the model is evaluated on what it was trained on"
        )


def _tasks(count: int) -> str:
    return "a task" if count == 1 else f"{count} tasks"
