"""The galleries a checkpoint is evaluated on, and the fields of their rows known beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.console import warn
from vlcpctl.core.rows import SCHEMA

GALLERIES = ("own", "merged", "both")
# Row fields that only an evaluation can fill; all others are compared on a rerun.
_MEASURED = (
    *("metrics", "degrees", "n_images", "n_texts", "n_queries", "n_gallery"),
    *("n_ties", "n_alone", "n_skipped", "n_train", "n_unseen", "strength"),
)


@dataclass(frozen=True)
class Place:
    """A task as rows refer to it."""

    slug: str
    step: int | None  # None: not part of a stream
    stream: str | None
    content: str

    def name_at(self, step: int | None) -> str:
        """Its slug, numbered by the step at which the model learned it if that is another."""
        if step is None or step == self.step:
            return self.slug
        return f"{step:02d}-{self.slug.split('-', 1)[-1]}"


@dataclass(frozen=True)
class Cell:
    """One row to be measured: indices of the tasks in its gallery, and its fixed fields."""

    tasks: tuple[int, ...]
    fields: dict[str, Any]

    def row(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        """The complete row in the order of the schema."""
        fixed = dict(self.fields)
        checkpoint = {"checkpoint": fixed.pop("checkpoint")}
        found = {name: measured[name] for name in _MEASURED if name in measured}
        return {**fixed, **found, **checkpoint}


def cells(
    checkpoint: Mapping[str, Any], places: Sequence[Place], gallery: str, common: Mapping[str, Any]
) -> list[Cell]:
    """The cells of a checkpoint, given its manifest: own galleries as given, then merged ones.

    There is a merged gallery of tasks 0..i of the stream for every i up to the checkpoint's step:
    CTP's tables show the last one, and its "BWT" compares the others with earlier checkpoints.
    """
    steps = steps_of(checkpoint, places)
    about = about_of(checkpoint)
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
            found.append(Cell((number,), fields_of(about, where, [place.name_at(step)], common)))
    if gallery in {"merged", "both"}:
        for members in _prefixes(checkpoint, steps):
            where = {
                "task_step": len(members) - 1,
                "stream": places[members[0]].stream,
                "gallery": "merged",
                "task": "merged",
            }
            names = [places[number].name_at(steps[number]) for number in members]
            found.append(Cell(members, fields_of(about, where, names, common)))
    return found


def holds(path: Path, expected: Iterable[Cell]) -> bool:
    """Whether a file holds the rows of these cells, whatever their measured values."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError:
        return False
    found = [
        {name: value for name, value in row.items() if name not in _MEASURED}
        for row in rows
        if isinstance(row, dict)
    ]
    return found == [{"schema": SCHEMA, **cell.fields} for cell in expected]


def about_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that describe a checkpoint in every row, given its manifest."""
    names = ("run", "method", "seed", "buffer", "step")
    about = {name: checkpoint[name] for name in names}
    if checkpoint.get("alpha") is not None:  # an average of two checkpoints
        about["alpha"] = checkpoint["alpha"]
    return {**about, "checkpoint": checkpoint["content"]}


def fields_of(
    about: Mapping[str, Any], where: Mapping[str, Any], slugs: list[str], common: Mapping[str, Any]
) -> dict[str, Any]:
    """The fixed fields of a row: those of the schema in its order, then all others."""
    everything = {**about, **where, **common, "tasks": slugs}
    first = ("run", "method", "seed", "buffer", "step", "task_step", "stream", "evaluator")
    then = ("protocol", "gallery", "task", "tasks", "split")
    ordered = {name: everything.pop(name) for name in (*first, *then)}
    return {**ordered, **everything}


def steps_of(checkpoint: Mapping[str, Any], places: Sequence[Place]) -> list[int | None]:
    """The stream step of each task for a checkpoint (its manifest); None if foreign to its run."""
    steps = checkpoint.get("task_steps")  # absent: each task has the step of its stream
    learned = dict(zip(checkpoint["tasks"], steps, strict=True)) if steps else {}
    homes = _homes(checkpoint, places, learned)
    return [
        learned[place.content] if place.content in learned else _step_in(homes, place, checkpoint)
        for place in places
    ]


def _homes(
    checkpoint: Mapping[str, Any], places: Sequence[Place], learned: Mapping[str, int | None]
) -> set[str | None]:
    """The streams that the run of a checkpoint belongs to."""
    # The manifest names the stream of the last step only. When data comes in week by week, `split`
    # makes a new stream that repeats the earlier tasks: it has another id, but it continues the
    # run if it holds tasks that the checkpoint learned, at the steps at which it learned them.
    # Its later tasks are then future steps. A reordered stream must not count: its steps differ.
    said = {str(checkpoint["stream"])} if checkpoint.get("stream") else set()
    seen = set(checkpoint["tasks"])
    found = {
        place.stream
        for place in places
        if place.content in seen and place.step == learned.get(place.content, place.step)
    }
    return said | found


def _step_in(homes: set[str | None], place: Place, checkpoint: Mapping[str, Any]) -> int | None:
    """The step of a task not learned yet; None for a task of a foreign stream."""
    if place.step is None or (homes and place.stream not in homes):
        return None
    # The checkpoint learned tasks, but none of these: at this step it learned another one.
    is_foreign = not homes and checkpoint["tasks"] and place.step <= checkpoint["step"]
    return None if is_foreign else place.step


def _prefixes(checkpoint: Mapping[str, Any], steps: Sequence[int | None]) -> list[tuple[int, ...]]:
    """Tasks 0..i for every i up to the checkpoint's step, or up to the first that is not given."""
    number_of = {step: number for number, step in enumerate(steps) if step is not None}
    last = -1 if checkpoint["step"] is None else int(checkpoint["step"])
    absent = [step for step in range(last + 1) if step not in number_of]
    if absent:
        warn(
            f"run {checkpoint['run']}, step {last}: a merged gallery needs every task up to its "
            f"step, but task {absent[0]} of the stream is not given"
        )
        last = absent[0] - 1
    members = [number_of[step] for step in range(last + 1)]
    return [tuple(members[: step + 1]) for step in range(last + 1)]
