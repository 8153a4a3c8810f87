"""The pairs that a request names, found in the indexes of tasks and in the tars of buffers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.splitting.known_keys import read_known
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.deletion.places import TRIMMED, Places
from vlcpctl.deletion.selectors import Condition, met_in
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop, is_among, unlisted_shards

_IN_TARS = ("key", "source_key", "sha256", "label", "task")


@dataclass(frozen=True)
class Pairs:
    """The pairs found, as what to remove, and the keys that each condition selects.

    Where a column selects them, `unlabelled` pairs have no value in it. `same_image` are the keys
    of other pairs with one of the images.
    """

    drop: Drop
    matched: dict[Condition, set[str]]
    images: set[str]  # sha256
    unlabelled: set[str]
    same_image: set[str]


def find(
    places: Places, conditions: Sequence[Condition], tars: Tars, known: Iterable[str]
) -> Pairs:
    """The pairs that the conditions select, and those with the keys `known`.

    Where a column selects them, samples that all indexes have evicted are removed, too: nothing
    records their columns, and no command reads them. Raises BadInput if a column is in no index, or
    if a task is damaged.
    """
    tasks = [open_task(path) for path in places.of("task")]
    splits = [(task, task.split(name)) for task in tasks for name in task.manifest.splits]
    indexes = [split.table for _, split in splits]
    tables = [*indexes, *(read_known(path).table for path in places.of(TRIMMED))]
    _require_columns(conditions, {name for table in tables for name in table.column_names})
    samples = [sample for task, split in splits for sample in _unlisted(task, split, tars)]
    schema = pa.schema([(name, pa.string()) for name in _IN_TARS])
    unlisted = pa.Table.from_pylist(samples, schema)
    matched: defaultdict[Condition, set[str]] = defaultdict(set)
    for table in (*tables, unlisted):
        for condition, key in met_in(table, conditions):
            matched[condition].add(key)
    keys = {*known, *(one.value for one in conditions if one.by == "key")}.union(*matched.values())
    rows = [one.filter(pa.array(is_among(one["key"], keys))) for one in (*tables, unlisted)]
    images, source_keys = (_texts(rows, name) for name in ("sha256", "source_key"))
    hidden = {one.column for one in conditions}.difference(_IN_TARS)
    listed = _texts(tables, "key") if hidden else set()
    evicted = _texts([unlisted], "key") - listed - keys if hidden else set()
    valued = [_valued(tables, name) for name in hidden]
    alike = [one.filter(pa.array(is_among(one["sha256"], images))) for one in indexes]
    return Pairs(
        Drop(frozenset(keys), frozenset(source_keys), frozenset(evicted)),
        matched,
        images,
        unlabelled={key for key in listed - keys if not all(key in one for one in valued)},
        same_image=_texts(alike, "key") - keys,
    )


def _unlisted(task: Task, split: Split, tars: Tars) -> Iterator[dict[str, str]]:
    """What describes the samples in a buffer's tars that its index does not list any more."""
    shards = unlisted_shards(task, split)
    listed = set(split.keys) if shards else set()
    for path in (task.path / shard for shard in shards):
        for sample in tars.samples(path):
            if sample.key not in listed:
                described = {**tars.description(path, sample), "key": sample.key}
                values = ((name, described.get(name)) for name in _IN_TARS)
                yield {name: str(value) for name, value in values if value is not None}


def _texts(tables: Iterable[pa.Table], column: str) -> set[str]:
    return {one for table in tables for one in table[column].to_pylist() if one is not None}


def _valued(tables: Iterable[pa.Table], column: str) -> set[str]:
    """The keys of the pairs that have a value in a column."""
    having = [table for table in tables if column in table.column_names]
    rows = (zip(one["key"].to_pylist(), one[column].to_pylist(), strict=True) for one in having)
    return {key for table in rows for key, value in table if value not in (None, [])}


def _require_columns(conditions: Iterable[Condition], columns: set[str]) -> None:
    for one in conditions:
        if one.by == "where" and one.column not in columns:
            raise BadInput(
                f"--where: no index has a column {one.column!r}; 'vlcpctl split --keep-columns' "
                f"keeps columns of the source (found: {some_names(sorted(columns)) or 'no index'})"
            )
