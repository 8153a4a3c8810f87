"""Rows of evaluations before they are measured: their tasks, and the fields known beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import warn
from vlcpctl.core.rows import SCHEMA
from vlcpctl.data.classification.data_sets import DataSet, TaskData
from vlcpctl.data.tasks.task import Task

GALLERIES = ("own", "merged", "both")


@dataclass(frozen=True)
class TaskPlace:
    """A task or data set as rows refer to it."""

    slug: str
    step: int | None  # None: not part of a stream
    stream: str | None
    content: str

    def name_at(self, step: int | None) -> str:
        """Its slug, numbered by the step at which the model learned it if that is another."""
        if step is None or step == self.step:
            return self.slug
        return f"{step:02d}-{self.slug.split('-', 1)[-1]}"


def place_of(data: Task | DataSet) -> TaskPlace:
    """The place of a task in its stream; of data outside streams, only its name."""
    task = data.task if isinstance(data, TaskData) else data
    if isinstance(task, Task):
        return TaskPlace(task.slug, task.step, task.manifest.get("stream"), task.content)
    return TaskPlace(task.name, None, None, "")


@dataclass(frozen=True)
class PlannedRow:
    """A row before it is measured: its tasks, by their number in the plan, and its fixed fields."""

    tasks: tuple[int, ...]
    fields: dict[str, Any]
    measured: tuple[str, ...]  # names of the other fields, in order; a rerun does not compare them

    def complete(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The complete row, in the order of the schema, given its measured fields."""
        assert found.keys() == set(self.measured), f"measured {list(found)}"
        fixed = dict(self.fields)
        checkpoint = {"checkpoint": fixed.pop("checkpoint")}
        return {**fixed, **{name: found[name] for name in self.measured}, **checkpoint}


def gallery_rows(
    checkpoint: CheckpointManifest,
    places: Sequence[TaskPlace],
    gallery: str,
    common: Mapping[str, Any],
    measured: tuple[str, ...],
) -> list[PlannedRow]:
    """The rows of a checkpoint by retrieval: own galleries as given, then merged ones.

    There is a merged gallery of tasks 0..i of the stream for every i up to the checkpoint's step:
    CTP's tables show the last one, and its "BWT" compares the others with earlier checkpoints.
    """
    steps = steps_of(checkpoint, places)
    about = checkpoint_fields(checkpoint)
    common = {"evaluator": "retrieval", **common}
    found = []
    if gallery in {"own", "both"}:
        for number, (place, step) in enumerate(zip(places, steps, strict=True)):
            where = {
                "task_step": step,
                "stream": place.stream,
                "gallery": "own",
                "task": place.name_at(step),
            }
            fields = row_fields(about, where, [place.name_at(step)], common)
            found.append(PlannedRow((number,), fields, measured))
    if gallery in {"merged", "both"}:
        for members in _prefixes(checkpoint, steps):
            where = {
                "task_step": len(members) - 1,
                "stream": places[members[0]].stream,
                "gallery": "merged",
                "task": "merged",
            }
            names = [places[number].name_at(steps[number]) for number in members]
            fields = row_fields(about, where, names, common)
            found.append(PlannedRow(members, fields, measured))
    return found


def holds(path: Path, expected: Iterable[PlannedRow]) -> bool:
    """Whether a file holds these rows, whatever their measured values."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError:
        return False
    planned = list(expected)
    return len(rows) == len(planned) and all(
        isinstance(row, dict) and _fixed(row, one.measured) == {"schema": SCHEMA, **one.fields}
        for row, one in zip(rows, planned, strict=True)
    )


def _fixed(row: Mapping[str, Any], measured: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in measured}


def checkpoint_fields(checkpoint: CheckpointManifest) -> dict[str, Any]:
    """The fields that describe a checkpoint in every row."""
    names = ("run", "method", "seed", "buffer", "step")
    about = {name: getattr(checkpoint, name) for name in names}
    if checkpoint.alpha is not None:  # an average of two checkpoints
        about["alpha"] = checkpoint.alpha
    return {**about, "checkpoint": checkpoint.content}


def row_fields(
    checkpoint: Mapping[str, Any],
    task: Mapping[str, Any],
    slugs: list[str],
    common: Mapping[str, Any],
) -> dict[str, Any]:
    """The fixed fields of a row: those of the schema in its order, then all others."""
    everything = {**checkpoint, **task, **common, "tasks": slugs}
    first = ("run", "method", "seed", "buffer", "step", "task_step", "stream", "evaluator")
    then = ("protocol", "gallery", "task", "tasks", "split")
    ordered = {name: everything.pop(name) for name in (*first, *then)}
    return {**ordered, **everything}


def steps_of(checkpoint: CheckpointManifest, places: Sequence[TaskPlace]) -> list[int | None]:
    """The stream step of each task for a checkpoint; None if foreign to its run."""
    steps = checkpoint.task_steps
    learned = dict(zip(checkpoint.tasks, steps, strict=True)) if steps else {}
    homes = _streams_of_run(checkpoint, places, learned)
    return [
        learned[place.content] if place.content in learned else _step_in(homes, place, checkpoint)
        for place in places
    ]


def _streams_of_run(
    checkpoint: CheckpointManifest, places: Sequence[TaskPlace], learned: Mapping[str, int | None]
) -> set[str | None]:
    """The streams that the run of a checkpoint belongs to."""
    # The manifest names the stream of the last step only. When data comes in week by week, `split`
    # makes a new stream that repeats the earlier tasks: it has another id, but it continues the
    # run if it holds tasks that the checkpoint learned, at the steps at which it learned them.
    # Its later tasks are then future steps. A reordered stream must not count: its steps differ.
    named = {checkpoint.stream} if checkpoint.stream else set()
    seen = set(checkpoint.tasks)
    found = {
        place.stream
        for place in places
        if place.content in seen and place.step == learned.get(place.content, place.step)
    }
    return named | found


def _step_in(
    homes: set[str | None], place: TaskPlace, checkpoint: CheckpointManifest
) -> int | None:
    """The step of a task not learned yet; None for a task of a foreign stream."""
    if place.step is None or (homes and place.stream not in homes):
        return None
    # The checkpoint learned tasks, but none of these: at this step it learned another one.
    last = checkpoint.step
    is_foreign = not homes and checkpoint.tasks and last is not None and place.step <= last
    return None if is_foreign else place.step


def _prefixes(checkpoint: CheckpointManifest, steps: Sequence[int | None]) -> list[tuple[int, ...]]:
    """Tasks 0..i for every i up to the checkpoint's step, or up to the first that is not given."""
    number_of = {step: number for number, step in enumerate(steps) if step is not None}
    last = -1 if checkpoint.step is None else int(checkpoint.step)
    absent = [step for step in range(last + 1) if step not in number_of]
    if absent:
        warn(
            f"run {checkpoint.run}, step {last}: a merged gallery needs every task up to its "
            f"step, but task {absent[0]} of the stream is not given"
        )
        last = absent[0] - 1
    members = [number_of[step] for step in range(last + 1)]
    return [tuple(members[: step + 1]) for step in range(last + 1)]
