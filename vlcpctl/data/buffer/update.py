"""Update a replay buffer with a task: choose what to keep, evict and admit, and write the result.

The result is a new directory; the previous buffer is only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vlcpctl.core.atomic import new_directory
from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.core.fields import Fields
from vlcpctl.core.manifest import MANIFESTS
from vlcpctl.data.buffer.lineage import update_warnings
from vlcpctl.data.buffer.manifest import BUFFER_NAME, BufferContents, Request, write_buffer_manifest
from vlcpctl.data.buffer.policies import (
    CTP,
    NEEDS_FEATURES,
    Allotment,
    BufferCandidates,
    FeaturesAt,
    allot,
    allot_as_ctp,
    most_considered,
    pick,
    pick_as_ctp,
)
from vlcpctl.data.buffer.segments import IndexRow, SegmentWriter, carry, next_number
from vlcpctl.data.precomputed.stored_features import Project, carry_over, write_features
from vlcpctl.data.tasks.index import BUFFER_SCHEMA, IndexWriter, schema_with
from vlcpctl.data.tasks.kept_columns import distinct
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.select.order import hash_order

# Of an earlier update, as its manifest records them.
_SETTINGS = {"policy": str, "variant": str, "seed": int, "count": int, "share": int | float}
Features = Callable[[Split, np.ndarray], np.ndarray]  # rows of a split to (N, D), L2-normalised


@dataclass(frozen=True)
class UpdatePlan:
    """Which items stay and how many are admitted."""

    seen: dict[str, int]  # task content id to its number of images, in the order of the tasks
    fresh: np.ndarray  # (M,) rows of the task that the buffer does not hold yet
    order: np.ndarray  # (M,) their hashes, in [0, 1)
    allotment: Allotment
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The update as one line for the log."""
        stays, held = int(self.allotment.stays.sum()), len(self.allotment.stays)
        admitted, images = self.allotment.admitted, sum(self.seen.values())
        line = f"keeps {stays} of {held}, admits {admitted} of {len(self.fresh)}"
        if stays + admitted == images:
            return f"{line}: all images so far are kept"
        tasks = f"{len(self.seen)} task{'' if len(self.seen) == 1 else 's'}"
        return f"{line}: {stays + admitted} of {images} images of {tasks}"


def open_buffer(path: Path) -> Task:
    """Open a buffer directory. Raises BadInput if it is a plain task, or not a task at all."""
    found = open_task(path)
    if BUFFER_NAME not in found.manifest:
        raise BadInput(f"{path} is a task, not a buffer; make one of it with 'vlcpctl buffer'")
    return found


def plan_update(request: Request) -> UpdatePlan:
    """Decide which items stay and how many are admitted; reads the indexes but no images.

    Raises BadInput if the task has no images to train on or the previous buffer was already
    updated with it, Incompatible if that buffer was made with other settings.
    """
    request.task.require("train")
    split = request.task.split("train")
    seen = {**request.previous_entry()["seen"], request.task.content: len(split)}
    held_task = np.empty(0, dtype=np.int64)
    priority = np.empty(0)
    known: set[str] = set()
    if request.previous is not None:
        _check_continues(request, request.previous)
        held = request.previous.split("train")
        known.update(held.keys)
        places = {content: place for place, content in enumerate(seen)}
        origins = held.column("origin_task")
        if not places.keys() >= set(origins):
            raise BadInput(f"{held.path} has a pair of a task that task.json does not list as seen")
        held_task = np.array([places[one] for one in origins], dtype=np.int64)
        priority = np.array(held.column(request.ranks_by()), dtype=np.float64)
    fresh = _unknown_rows(split.keys, known)
    order = hash_order(request.seed, (split.keys[row] for row in fresh))
    candidates = BufferCandidates(list(seen.values()), held_task, priority, order, fresh)
    allotment = _allot(request, candidates)
    warnings = (*update_warnings(request), *_sample_warnings(request, allotment, len(fresh)))
    return UpdatePlan(seen, fresh, order, allotment, warnings)


def write_buffer(
    out: Path,
    request: Request,
    plan: UpdatePlan,
    features: Features,
    project: Project | None = None,
) -> None:
    """Write the buffer that the plan describes to `out`; the previous one is not changed.

    `features` is called only by herding and k-means, to choose the items. `project` computes the
    projections to store with each admitted pair (for DER). Raises BadInput if an image or the
    previous buffer cannot be read.
    """
    split = request.task.split("train")
    picked = _picked(request, plan, lambda places: features(split, plan.fresh[places]))
    with new_directory(out, MANIFESTS["task"]) as directory:
        held = request.previous_entry()
        writer = SegmentWriter(directory, next_number(held["shard_rows"]))
        rows: list[IndexRow] = []
        try:
            if request.previous is not None:
                previous = request.previous.split("train")
                rows += carry(previous, plan.allotment.stays, held["shard_rows"], writer)
                _add_kept(rows, split, request.task.kept_columns)
            rows += _admit(request, split, plan, picked, writer)
            writer.close()
        finally:
            writer.abandon()
        _write_index(directory, rows, request.kept_columns())
        stored = _store(directory, request, plan.fresh[picked], rows, project)
        written = BufferContents(
            seen=plan.seen,
            rows=rows,
            shard_rows=dict(writer.rows),
            features=stored,
            warnings=plan.warnings,
        )
        write_buffer_manifest(directory, request, written)


def _sample_warnings(request: Request, allotment: Allotment, items: int) -> list[str]:
    if request.policy not in NEEDS_FEATURES or request.variant == CTP or not allotment.admitted:
        return []
    considered = most_considered(allotment.admitted)
    if items <= considered:
        return []
    of_them = f"{considered} of the {items} images of {request.task.path}"
    grows = "its time grows with their number"
    return [f"{request.policy} chooses among {of_them}, drawn at random: {grows}"]


def _allot(request: Request, candidates: BufferCandidates) -> Allotment:
    if request.variant == CTP:
        assert request.size.count is not None, "check_variant ensures it"
        return allot_as_ctp(request.policy, request.size.count, candidates, request.seed)
    return allot(request.policy, request.size, candidates)


def _picked(request: Request, plan: UpdatePlan, features: FeaturesAt) -> np.ndarray:
    """(admitted,) positions in `plan.fresh` of the items to admit; the first are evicted last."""
    if plan.allotment.picked is not None:
        return plan.allotment.picked
    count = plan.allotment.admitted
    if request.variant == CTP:
        return pick_as_ctp(request.policy, count, len(plan.fresh), features)
    return pick(request.policy, count, plan.order, features, request.seed)


def _check_continues(request: Request, previous: Task) -> None:
    """Refuse a task that was added before, and settings the held items were not chosen with."""
    held, size = request.previous_entry(), request.size
    fields = Fields(held, previous.path / MANIFESTS["task"])
    for name, kind in _SETTINGS.items():
        fields(name, kind, None)
    if request.versions().among(request.task.content, held["seen"]):
        raise BadInput(
            f"{previous.path} was already updated with {request.task.path}; give the next task"
        )
    given = {name: request.identity()[name] for name in ("policy", "variant", "seed")}
    for name, wanted in {**given, "kind": size.kind}.items():
        if held.get(name) != wanted:
            option = "size" if name == "kind" else name
            raise Incompatible(
                f"{previous.path} was made with {option} {held.get(name)!r}, not {wanted!r}; "
                "use the same setting, or start a new buffer without --previous"
            )
    if bool(held.get("features")) != request.stores_features:
        has = "with" if held.get("features") else "without"
        raise Incompatible(
            f"{previous.path} was made {has} --store-features; "
            "use the same setting, or start a new buffer without --previous"
        )


def _unknown_rows(keys: list[str], known: set[str]) -> np.ndarray:
    """The first row of every key that is not known; adds the keys found to `known`."""
    rows = []
    for row, key in enumerate(keys):
        if key not in known:
            known.add(key)
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def _admit(
    request: Request, split: Split, plan: UpdatePlan, picked: np.ndarray, writer: SegmentWriter
) -> list[IndexRow]:
    """Copy the picked items into the buffer; returns their index rows."""
    numbers = plan.fresh[picked]
    ranks = np.arange(len(picked)) if plan.allotment.ranks is None else plan.allotment.ranks
    records: list[IndexRow] = split.table.take(numbers).to_pylist()
    admitted = []
    for place in np.argsort(numbers).tolist():  # in the task's order, to read its tars once through
        row = writer.add(split, int(numbers[place]), records[place], request.task.name)
        origin = {"origin_task": request.task.content, "rank": int(ranks[place])}
        admitted.append({**row, **origin, "order": float(plan.order[picked[place]])})
    return admitted


def _store(
    directory: Path,
    request: Request,
    numbers: np.ndarray,
    rows: list[IndexRow],
    project: Project | None,
) -> dict[str, Any] | None:
    """Write the features of all pairs in the index; returns their entry in the manifest, if any."""
    if not request.stores_features:
        return None
    assert project is not None, "storing features needs a function that computes them"
    split = request.task.split("train")
    admitted_keys = [split.keys[number] for number in numbers.tolist()]
    keys = [str(row["key"]) for row in rows]
    admitted = project(split, numbers)
    found = carry_over(request.previous, admitted, admitted_keys, keys)
    write_features(directory, keys, found)
    return {"width": found.width, "dtype": "float16", "content": found.content(keys)}


def _add_kept(rows: list[IndexRow], split: Split, kept: list[str]) -> None:
    """Add the task's kept values to held rows whose pairs it has too; they are not admitted again.

    The earlier task may be deleted: then only the buffer knows that its pair had a later value.
    """
    if not kept:
        return
    row_of = {key: row for row, key in enumerate(split.keys)}
    repeated = [row for row in rows if row["key"] in row_of]
    numbers = [row_of[str(row["key"])] for row in repeated]
    found = split.table.select(kept).take(pa.array(numbers, pa.int64())).to_pylist()
    for row, more in zip(repeated, found, strict=True):
        row |= {name: distinct((*row.get(name, ()), *more[name])) for name in kept}


def _write_index(directory: Path, rows: list[IndexRow], kept: list[str]) -> None:
    # Sorted by key, so that the same items give the same content id however they were collected.
    rows.sort(key=lambda row: str(row["key"]))
    index = IndexWriter(directory / "train.parquet", schema_with(kept, BUFFER_SCHEMA))
    for row in rows:
        # A task without a kept column of the others has no value in it.
        values = (row.get(name, ()) for name in kept)
        index.add((*(row[name] for name in BUFFER_SCHEMA.names), *values))
    index.close()
