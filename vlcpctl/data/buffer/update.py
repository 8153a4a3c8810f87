"""Update a replay buffer with a task: choose what to keep, evict and admit, and write the result.

The result is a new directory; the previous buffer is only read. Tars are written once, then
hard-linked by updates until over half is evicted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import to_builtins

from vlcpctl.core.errors import BadInput, Incompatible, unreadable
from vlcpctl.data.buffer.policies import (
    CTP,
    NEEDS_FEATURES,
    Allotment,
    BufferCandidates,
    FeaturesAt,
    allot,
    most_considered,
    pick,
    pick_as_ctp,
    require_considered,
)
from vlcpctl.data.buffer.request import BufferRequest, update_warnings
from vlcpctl.data.images.header import read_header
from vlcpctl.data.precomputed.features import Project, carry_over, write_features
from vlcpctl.data.tasks.facts import (
    BufferManifest,
    SplitManifest,
    StoredFeatures,
    TaskSummary,
    content_with,
    file_facts,
)
from vlcpctl.data.tasks.index import BUFFER_SCHEMA, schema_with, wide, write_index
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.samples import Pair, distinct
from vlcpctl.data.tasks.tars import Appender, TarWriter
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.files.manifest import is_artifact, write_manifest
from vlcpctl.files.outputs import link_or_copy, new_directory
from vlcpctl.select.order import hash_order

BUFFER_NAME = "buffer"  # a buffer's task name, and the key of its own section in the manifest
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
        line = f"keeps {stays} of {held}, " if held else ""  # without --previous nothing is held
        line += f"admits {admitted} of {len(self.fresh)}"
        if stays + admitted == images:
            return f"{line}: all images so far are kept"
        tasks = f"{len(self.seen)} task{'' if len(self.seen) == 1 else 's'}"
        return f"{line}: {stays + admitted} of {images} images of {tasks}"


def open_buffer(path: Path) -> Task:
    """Open a buffer directory. Raises BadInput if it is a plain task, or not a task at all."""
    found = open_task(path)
    _ = found.buffer
    return found


def plan_update(request: BufferRequest) -> UpdatePlan:
    """Decide which items stay and how many are admitted; reads the indexes but no images.

    Raises BadInput if the task has no images to train on or the previous buffer was already
    updated with it, UsageError if herding or k-means would choose from too many or too few images,
    and Incompatible if that buffer was made with other settings.
    """
    request.task.require("train")
    split = request.task.split("train")
    seen = {**request.seen(), request.task.id: len(split)}
    held_task = np.empty(0, dtype=np.int64)
    priority = np.empty(0)
    is_fresh = split.keys.firsts()
    if request.previous is not None:
        _check_continues(request, request.previous)
        held = request.previous.split("train")
        is_fresh &= ~split.keys.among(held.keys)
        held_task, priority = _held(held, list(seen), request.ranks_by())
    fresh = np.flatnonzero(is_fresh)
    order = hash_order(request.seed, split.keys.take(fresh))
    candidates = BufferCandidates(list(seen.values()), held_task, priority, order, fresh)
    allotment = allot(request.policy, request.variant, request.size, candidates, request.seed)
    wanted, count = request.candidates, allotment.admitted
    require_considered(request.policy, request.variant, count, len(fresh), wanted)
    warnings = (*update_warnings(request), *_sample_warnings(request, allotment, len(fresh)))
    return UpdatePlan(seen, fresh, order, allotment, warnings)


def write_buffer(
    out: Path,
    request: BufferRequest,
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
    with new_directory(out, is_artifact) as directory:
        tars = TarWriter(directory, "train", Appender(), first=next_number(request.shard_rows()))
        parts = [*_carried(request, plan, tars), _admit(request, split, plan, picked, tars)]
        tars.close()
        rows, keys = _sorted(parts, request.kept_columns())
        schema = schema_with(request.kept_columns(), BUFFER_SCHEMA)
        content = write_index(directory / "train.parquet", rows, schema)
        stored = _store(directory, request, plan.fresh[picked], keys, project)
        facts = file_facts(directory, "train", sorted(tars.counts))
        train = SplitManifest(
            images=len(rows),
            captions=int(pc.sum(pc.list_value_length(rows["captions"])).as_py() or 0),
            shards=tuple(sorted(tars.counts)),
            bytes=sum(facts["shard_bytes"]),
            content=content,
            **facts,
        )
        items = {one["values"]: one["counts"] for one in rows["task"].value_counts().to_pylist()}
        buffer = BufferManifest(
            policy=request.policy,
            variant=request.variant,
            size=request.size.text,
            of=request.size.of,
            kind=request.size.kind,
            count=request.size.count,
            share=request.size.share,
            seed=request.seed,
            checkpoint=request.checkpoint,
            seen=plan.seen,
            items=items,
            shard_rows=dict(tars.counts),
            features=stored,
        )
        labels = [label for label in rows["label"].unique().to_pylist() if label is not None]
        summary = TaskSummary(BUFFER_NAME, {"train": train}, sorted(labels))
        _write_manifest(directory, request, summary, buffer, plan.warnings)


def _write_manifest(
    directory: Path,
    request: BufferRequest,
    summary: TaskSummary,
    buffer: BufferManifest,
    warnings: Sequence[str],
) -> None:
    kept = request.kept_columns()
    body: dict[str, Any] = {
        "name": BUFFER_NAME,
        "slug": BUFFER_NAME,
        "step": None,
        "tasks_in_stream": request.task.manifest.tasks_in_stream,
        "stream": request.task.manifest.stream,
        "splits": to_builtins(summary.splits),
        "labels": summary.labels,
        "skipped": {},
        **({"kept_columns": kept} if kept else {}),
        "inputs": [one for one in (request.task.content, request.checkpoint) if one],
        BUFFER_NAME: to_builtins(buffer),
        **({"warnings": warnings} if warnings else {}),
    }
    content = content_with(summary.content, buffer.features)
    write_manifest(directory, "task", request.identity(), content, body)


def _sample_warnings(request: BufferRequest, allotment: Allotment, items: int) -> list[str]:
    if request.policy not in NEEDS_FEATURES or request.variant == CTP or not allotment.admitted:
        return []
    considered = request.candidates or most_considered(allotment.admitted)
    if items <= considered:
        return []
    of_them = f"{considered} of the {items} images of {request.task.path}"
    grows = "its time grows with their number"
    return [f"{request.policy} chooses among {of_them}, drawn at random: {grows}"]


def _picked(request: BufferRequest, plan: UpdatePlan, features: FeaturesAt) -> np.ndarray:
    """(admitted,) positions in `plan.fresh` of the items to admit; the first are evicted last."""
    if plan.allotment.picked is not None:
        return plan.allotment.picked
    count = plan.allotment.admitted
    if request.variant == CTP:
        return pick_as_ctp(request.policy, count, len(plan.fresh), features)
    wanted = request.candidates
    return pick(request.policy, count, plan.order, features, request.seed, wanted)


def _check_continues(request: BufferRequest, previous: Task) -> None:
    """Refuse a task that was added before, and settings the held items were not chosen with."""
    held, size = previous.buffer, request.size
    if request.task.is_among(held.seen):
        raise BadInput(
            f"{previous.path} was already updated with {request.task.path}; give the next task"
        )
    given = {name: request.identity()[name] for name in ("policy", "variant", "seed")}
    for name, wanted in {**given, "kind": size.kind}.items():
        found = getattr(held, name)
        if found != wanted:
            option = "size" if name == "kind" else name
            raise Incompatible(
                f"{previous.path} was made with {option} {found!r}, not {wanted!r}; "
                "use the same setting, or start a new buffer without --previous"
            )
    if (held.features is not None) != request.stores_features:
        has = "with" if held.features else "without"
        raise Incompatible(
            f"{previous.path} was made {has} --store-features; "
            "use the same setting, or start a new buffer without --previous"
        )


def _held(held: Split, seen: Sequence[str], ranks_by: str) -> tuple[np.ndarray, np.ndarray]:
    """(N,) index into the seen tasks, and (N,) priority, of each pair of the previous buffer."""
    table = held.columns(["origin_task", ranks_by])
    try:
        task = pc.index_in(table["origin_task"].cast(pa.string()), pa.array(seen, pa.string()))
        priority = table[ranks_by].cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        raise BadInput(unreadable(held.path, error)) from error
    if task.null_count:
        raise BadInput(f"{held.path} has a pair of a task that task.json does not list as seen")
    return task.to_numpy(), priority


def _admit(
    request: BufferRequest,
    split: Split,
    plan: UpdatePlan,
    picked: np.ndarray,
    tars: TarWriter,
) -> pa.Table:
    """Copy the picked items into the buffer; returns their index rows."""
    numbers = plan.fresh[picked]
    ranks = np.arange(len(picked)) if plan.allotment.ranks is None else plan.allotment.ranks
    ascending = np.argsort(numbers)  # the task's order, to read its tars once through
    schema = schema_with(request.task.kept_columns)
    rows = split.take(numbers[ascending], schema)
    rows = copy(split, numbers[ascending], rows, tars, request.task.name)
    more = {
        "origin_task": pa.repeat(request.task.id, len(rows)),
        "rank": pa.array(ranks[ascending], pa.int64()),
        "order": pa.array(plan.order[picked[ascending]], pa.float64()),
    }
    for name, values in more.items():
        rows = rows.append_column(name, values)
    return rows


def _store(
    directory: Path,
    request: BufferRequest,
    numbers: np.ndarray,
    keys: Keys,
    project: Project | None,
) -> StoredFeatures | None:
    """Write the features of all pairs in the index; returns their entry in the manifest, if any."""
    if not request.stores_features:
        return None
    assert project is not None, "storing features needs a function that computes them"
    split = request.task.split("train")
    admitted = project(split, numbers)
    found = carry_over(request.previous, admitted, split.keys.take(numbers), keys)
    write_features(directory, keys, found)
    return StoredFeatures(width=found.width, dtype="float16", content=found.content(keys))


def _carried(request: BufferRequest, plan: UpdatePlan, tars: TarWriter) -> Iterator[pa.Table]:
    """The index rows of the previous buffer's items that stay, if there is one."""
    if request.previous is None:
        return
    previous, numbers = request.previous.split("train"), np.flatnonzero(plan.allotment.stays)
    schema = schema_with(request.previous.kept_columns, BUFFER_SCHEMA)
    rows = previous.take(numbers, schema).cast(wide(schema))
    rows = carry(previous, rows, numbers, request.shard_rows(), tars)
    split, kept = request.task.split("train"), request.task.kept_columns
    yield _with_kept(_complete(rows, request.kept_columns()), split, kept)


def _with_kept(rows: pa.Table, split: Split, kept: Sequence[str]) -> pa.Table:
    """Held rows, with the task's kept values of those pairs that it has; they are not admitted.

    The earlier task may be deleted: then only the buffer knows that its pair had a later value.
    """
    if not kept:
        return rows
    places = _keys(rows).places_in(split.keys)
    repeated = np.flatnonzero(places >= 0)
    ascending = repeated[np.argsort(places[repeated])]
    schema = pa.schema([field for field in schema_with(kept) if field.name in kept])
    more = split.take(places[ascending], schema).to_pydict()
    for name in kept:
        values = rows[name].to_pylist()
        for row, found in zip(ascending.tolist(), more[name], strict=True):
            values[row] = distinct((*values[row], *found))
        rows = with_column(rows, name, pa.array(values, rows[name].type))
    return rows


def _complete(rows: pa.Table, kept: Sequence[str]) -> pa.Table:
    """Rows with all kept columns; a task without one of the others' has no value in it."""
    schema = wide(schema_with(kept, BUFFER_SCHEMA))
    for name in schema.names:
        if name not in rows.column_names:
            ends = pa.array(np.zeros(len(rows) + 1, dtype=np.int32))
            none = pa.ListArray.from_arrays(ends, pa.array([], pa.string()))
            rows = rows.append_column(name, none)
    return rows.select(schema.names).cast(schema)


def _sorted(parts: Sequence[pa.Table], kept: Sequence[str]) -> tuple[pa.Table, Keys]:
    """All rows sorted by key, and their keys.

    So the same items give the same content id however they were collected.
    """
    rows = pa.concat_tables(_complete(part, kept) for part in parts)
    keys = _keys(rows)
    order = keys.order()
    return rows.take(order), keys.take(order)


def _keys(rows: pa.Table) -> Keys:
    return Keys.joined([Keys.of_array(chunk) for chunk in rows["key"].chunks])


# -- tars

_AT_ONCE = 256  # images that are in memory
_OF_SAMPLES = ["key", "source_key", "captions", "label", "width", "height", "sha256"]


def copy(
    split: Split, numbers: np.ndarray, rows: pa.Table, to: TarWriter, task: str = ""
) -> pa.Table:
    """Copy the images of n rows into tars; returns the index rows with their new places.

    `numbers`, (n,), are those of `rows` in the split. With `task` they become rows of it; without,
    they keep theirs. Raises BadInput if an image cannot be read.
    """
    shards: list[str] = []
    offsets: list[int] = []
    for start in range(0, len(rows), _AT_ONCE):
        some, tasks = [], []
        records = rows.slice(start, _AT_ONCE).select([*_OF_SAMPLES, "task"]).to_pylist()
        for row, record in zip(numbers[start : start + _AT_ONCE].tolist(), records, strict=True):
            tasks.append(task or record["task"])
            image = split.image(row)
            fields = {name: record[name] for name in _OF_SAMPLES}
            kind = read_header(image).kind
            some.append(Pair(row, image=image, kind=kind, value=None, split=None, **fields))
        for shard, offset, _ in to.add(some, tasks):
            shards.append(shard)
            offsets.append(offset)
    found = with_column(rows, "shard", pa.array(shards, pa.string()))
    found = with_column(found, "offset", pa.array(offsets, pa.int64()))
    return with_column(found, "task", pa.repeat(task, len(rows))) if task else found


def carry(
    split: Split, rows: pa.Table, numbers: np.ndarray, held: Mapping[str, int], to: TarWriter
) -> pa.Table:
    """Carry the rows that stay over into a new directory; returns their index rows, in any order.

    A tar is hard-linked if at least half of its samples, of which it `held` so many, stay;
    otherwise the remaining samples are copied to a new tar. So at most half of the samples in a tar
    are evicted ones. `numbers`, (n,), are those of `rows` in the split. Raises BadInput if a tar is
    missing or damaged.
    """
    counts = rows["shard"].value_counts().to_pylist()
    live = {one["values"]: one["counts"] for one in counts}
    unlisted = sorted(live.keys() - held.keys())
    if unlisted:
        raise BadInput(f"{split.path}: shard {unlisted[0]} is not among shard_rows in task.json")
    linked = sorted(shard for shard, count in live.items() if 2 * count >= held[shard])
    for shard in linked:
        link_or_copy((split.directory / shard).resolve(), to.directory / shard)
        to.counts[shard] = held[shard]
    stays_N = pc.is_in(rows["shard"], value_set=pa.array(linked, rows["shard"].type)).to_numpy()
    moved = np.flatnonzero(~stays_N)
    by_place = rows.select(["shard", "offset"]).take(moved)
    order = pc.sort_indices(by_place, [("shard", "ascending"), ("offset", "ascending")]).to_numpy()
    moved = moved[order]
    return pa.concat_tables(
        [rows.filter(pa.array(stays_N)), copy(split, numbers[moved], rows.take(moved), to)]
    )


def with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The table with other values in a column."""
    place = table.schema.get_field_index(name)
    field = table.schema.field(place)
    return table.set_column(place, field, values.cast(field.type))


def next_number(shards: Iterable[str]) -> int:
    """The lowest number greater than that of every tar.

    >>> next_number(["train-000000.tar", "train-000004.tar"])
    5
    """
    numbers = [int(found[1]) for shard in shards if (found := re.search(r"-(\d+)\.tar$", shard))]
    return max(numbers, default=-1) + 1
