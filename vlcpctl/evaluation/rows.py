"""Rows of evaluations before they are measured: their tasks, and the fields known beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import preset_of, step_config
from vlcpctl.core.console import warn
from vlcpctl.data.classification.data_sets import DataSet, TaskData
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import parse_json
from vlcpctl.files.rows import SCHEMA

_FIRST = (
    *("run", "method", "seed", "buffer", "step", "task_step", "stream", "evaluator"),
    *("protocol", "gallery", "task", "tasks", "split", "data", "data_content", "limit", "options"),
)
_LAST = ("start", "parent", "preset", "config", "checkpoint")


def place_of(data: Task | DataSet, *splits: str) -> TaskPlace:
    """The place of a task in its stream; of data outside streams, only its name and content.

    `splits` are those evaluated: they decide the content ids.
    """
    task = data.task if isinstance(data, TaskData) else data
    if isinstance(task, Task):
        place = task.slug, task.step, task.manifest.stream
        return TaskPlace(*place, *task.ids, task.changed(*splits))
    return TaskPlace(task.name, None, None, task.content(*splits))


@dataclass(frozen=True)
class Row:
    """A row before it is measured: its tasks, by their number in the plan, and its fixed fields."""

    tasks: tuple[int, ...]
    fields: dict[str, Any]
    measured: tuple[str, ...]  # names of the other fields, in order; a rerun does not compare them

    def complete(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The complete row, in the order of the schema, given its measured fields."""
        assert found.keys() == set(self.measured), f"measured {list(found)}"
        fixed = dict(self.fields)
        last = {name: fixed.pop(name) for name in _LAST if name in fixed}
        return {**fixed, **{name: found[name] for name in self.measured}, **last}


def own_rows(
    checkpoint: RunCheckpoint,
    places: Sequence[TaskPlace],
    about: Mapping[str, Any],
    measured: tuple[str, ...],
    each: Sequence[Mapping[str, Any]] | None = None,
) -> list[Row]:
    """A row of a checkpoint for each place by itself, in their order.

    `about` are the fields that say how it is evaluated: evaluator, protocol, split, limit, options;
    `each` are those that differ between the places.
    """
    found = []
    for number, (place, step) in enumerate(zip(places, checkpoint.steps(places), strict=True)):
        name = place.name_at(step, checkpoint.digits)
        where = {"task_step": step, "stream": place.stream, "task": name, "tasks": [name]}
        fields = {"gallery": "own", **where, **data_fields([place]), **about}
        if each is not None:
            fields |= each[number]
        found.append(Row((number,), row_fields(checkpoint, fields), measured))
    return found


def gallery_rows(
    checkpoint: RunCheckpoint,
    places: Sequence[TaskPlace],
    gallery: str,
    common: Mapping[str, Any],
    measured: tuple[str, ...],
) -> list[Row]:
    """The rows of a checkpoint by retrieval: own galleries as given, then merged ones.

    There is a merged gallery of tasks 0..i of the stream for every i up to the checkpoint's step:
    CTP's tables show the last one, and its "BWT" compares the others with earlier checkpoints.
    """
    steps = checkpoint.steps(places)
    common = {"evaluator": "retrieval", **common}
    found = [] if gallery == "merged" else own_rows(checkpoint, places, common, measured)
    if gallery != "own":
        for members in _prefixes(checkpoint.manifest, steps):
            where = {
                "task_step": len(members) - 1,
                "stream": places[members[0]].stream,
                "gallery": "merged",
                "task": "merged",
                "tasks": [
                    places[number].name_at(steps[number], checkpoint.digits) for number in members
                ],
                **data_fields([places[number] for number in members]),
            }
            fields = row_fields(checkpoint, {**where, **common})
            found.append(Row(members, fields, measured))
    return found


def holds(path: Path, expected: Iterable[Row]) -> bool:
    """Whether a file holds these rows, whatever their measured values."""
    try:
        rows = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError:
        return False
    planned = list(expected)
    return len(rows) == len(planned) and all(
        isinstance(row, dict)
        and {name: row[name] for name in row if name not in one.measured}
        == {"schema": SCHEMA, **one.fields}
        for row, one in zip(rows, planned, strict=True)
    )


def checkpoint_fields(checkpoint: RunCheckpoint) -> dict[str, Any]:
    """The fields that describe a checkpoint in every row."""
    made = checkpoint.manifest
    names = ("run", "method", "seed", "buffer", "step")
    about = {name: getattr(made, name) for name in names}
    if made.alpha is not None:  # an average of two checkpoints
        about["alpha"] = made.alpha
    if (preset := preset_of(made)) is not None:
        about["preset"] = preset
    lineage = {"start": made.start, "parent": made.parent, "config": step_config(made)}
    return {**about, **lineage, "checkpoint": made.content}


def data_fields(places: Sequence[TaskPlace]) -> dict[str, Any]:
    """The id of the data of a row; with a content id, if `forget` has removed evaluated pairs."""
    found = {}
    for name, ids in (
        ("data", [place.id for place in places]),
        ("data_content", [place.evaluated or place.id for place in places]),
    ):
        found[name] = ids[0] if len(ids) == 1 else content_id(ids)
    if found["data_content"] == found["data"]:
        del found["data_content"]
    return found


def row_fields(checkpoint: RunCheckpoint, about: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed fields of a row: those of the schema in its order, then all others."""
    everything = {**checkpoint_fields(checkpoint), **about}
    ordered = {name: everything.pop(name) for name in _FIRST if name in everything}
    return {**ordered, **everything}


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
