"""The pairs that a request names, found in the indexes of tasks and in the tars of buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.splitting.known_keys import read_known
from vlcpctl.data.tasks.exported import KIND, exported_pairs
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.deletion.places import KNOWN, Places
from vlcpctl.deletion.selectors import Selectors, is_among
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop, unlisted_shards


@dataclass
class Matches:
    """The pairs found: their keys, images (sha256), and the keys that the source gave them."""

    keys: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)
    source_keys: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)  # keys that no index lists any more
    unlabelled: set[str] = field(default_factory=set)  # keys without a value in such a column
    same_image: set[str] = field(default_factory=set)  # keys of other pairs with one of the images
    matched: dict[str, set[str]] = field(default_factory=dict)  # keys by the words of a condition

    def match(self, words: str, key: str) -> None:
        """Record that a condition selects a pair."""
        self.keys.add(key)
        self.matched.setdefault(words, set()).add(key)

    def counts(self, selectors: Selectors) -> list[int]:
        """How many pairs each condition selects, in the order of `Selectors.described`."""
        return [len(self.matched.get(words, ())) for words in selectors.words()]

    def drop(self) -> Drop:
        """What to remove."""
        return Drop(frozenset(self.keys), frozenset(self.source_keys), frozenset(self.evicted))


def find(places: Places, selectors: Selectors, tars: Tars, more: frozenset[str]) -> Matches:
    """The pairs that the conditions select, and those with the keys `more`.

    Where a column selects them, samples that all indexes have evicted are `evicted`: nothing
    records their columns, and no command reads them, so they are removed, too. Raises BadInput if
    a column is in no index, or if a task is damaged.
    """
    found = Matches(keys=set(selectors.keys | more))
    tasks = [open_task(one.path) for one in places.stored if one.kind == "task"]
    columns: set[str] = set()
    valued: dict[str, set[str]] = {name: set() for name in selectors.hidden_columns()}
    for task, split in _splits(tasks):
        columns.update(split.table.column_names)
        _add_rows(found, split.table, selectors)
        _add_valued(valued, split.table)
        _add_samples(found, task, split, selectors, tars)
    exported = [exported_pairs(one.path) for one in places.stored if one.kind == KIND]
    exports = [table for table in exported if table is not None]
    trimmed = [read_known(one.path).table for one in places.stored if one.kind == KNOWN]
    for table in (*exports, *trimmed):
        columns.update(table.column_names)
        _add_rows(found, table, selectors)
    for table in trimmed:
        _add_valued(valued, table)
    _require_columns(selectors, columns)
    if valued:
        of_trimmed = {key for table in trimmed for key in table["key"].to_pylist()}
        found.evicted = _evicted(tasks, tars) - found.keys - of_trimmed
        known = set.intersection(*valued.values())
        for keys in (*(split.keys for _, split in _splits(tasks)), of_trimmed):
            found.unlabelled.update(key for key in keys if key not in known)
        found.unlabelled -= found.keys
    for table in [*(split.table for _, split in _splits(tasks)), *exports, *trimmed]:
        _add_facts(found, table)
    return found


def _splits(tasks: Sequence[Task]) -> Iterator[tuple[Task, Split]]:
    for task in tasks:
        for name in task.manifest.splits:
            yield task, task.split(name)


def _add_rows(found: Matches, pairs: pa.Table, selectors: Selectors) -> None:
    for words, key in selectors.each(pairs):
        found.match(words, key)


def _add_valued(valued: dict[str, set[str]], table: pa.Table) -> None:
    """Add the keys of the pairs that have a value in each column."""
    for name, keys in valued.items():
        if name in table.column_names:
            column = table[name]
            has_N = pc.is_valid(column)
            if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
                has_N = pc.greater(pc.fill_null(pc.list_value_length(column), 0), 0)
            keys.update(table["key"].filter(has_N).to_pylist())


def _add_samples(
    found: Matches, task: Task, split: Split, selectors: Selectors, tars: Tars
) -> None:
    """Add samples of a buffer's tars that its index does not list any more."""
    shards = unlisted_shards(task, split)
    listed = set(split.keys) if shards else set()
    for shard in shards:
        path = task.path / shard
        for sample in tars.samples(path):
            if sample.key in listed:
                continue
            described = {"key": sample.key, **tars.description(path, sample)}
            conditions = selectors.of_sample(described)
            for words in conditions:
                found.match(words, sample.key)
            if conditions or sample.key in found.keys:
                found.images.update(_texts(described.get("sha256")))
                found.source_keys.update(_texts(described.get("source_key")))


def _texts(value: object) -> list[str]:
    return [value] if isinstance(value, str) else []


def _evicted(tasks: Sequence[Task], tars: Tars) -> set[str]:
    """The keys of samples in tars that no index lists."""
    unlisted = {
        sample.key
        for task, split in _splits(tasks)
        for shard in unlisted_shards(task, split)
        for sample in tars.samples(task.path / shard)
    }
    for _, split in _splits(tasks) if unlisted else ():
        unlisted.difference_update(split.keys)
    return unlisted


def _add_facts(found: Matches, pairs: pa.Table) -> None:
    """Add the images and source keys of the pairs, and the other pairs that have these images."""
    table = pairs.select(["key", "sha256", "source_key"])
    rows = table.filter(pa.array(is_among(table["key"], found.keys)))
    found.images.update(image for image in rows["sha256"].to_pylist() if image is not None)
    found.source_keys.update(key for key in rows["source_key"].to_pylist() if key is not None)


def add_same_images(found: Matches, places: Places) -> None:
    """Add the keys of other pairs that have one of the images."""
    for one in places.stored:
        if one.kind != "task" or not found.images:
            continue
        for _, split in _splits([open_task(one.path)]):
            alike = split.table.filter(pa.array(is_among(split.table["sha256"], found.images)))
            found.same_image.update(set(alike["key"].to_pylist()) - found.keys)


def _require_columns(selectors: Selectors, columns: set[str]) -> None:
    for name, _ in selectors.columns:
        if name not in columns:
            raise BadInput(
                f"--where: no index has a column {name!r}; 'vlcpctl split --keep-columns' keeps "
                f"columns of the source (found: {some_names(sorted(columns)) or 'no index'})"
            )
