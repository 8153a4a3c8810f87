"""The pairs that a request names, found in the indexes of tasks and in the tars of buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.splitting.known_keys import read_known
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.deletion.places import TRIMMED, Places
from vlcpctl.deletion.selectors import Selectors
from vlcpctl.deletion.tars import Tars, TarSample
from vlcpctl.deletion.tasks import Drop, is_among, unlisted_shards


@dataclass
class Pairs:
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


def find(places: Places, selectors: Selectors, tars: Tars, known: Iterable[str]) -> Pairs:
    """The pairs that the conditions select, and those with the keys `known`.

    Where a column selects them, samples that all indexes have evicted are `evicted`: nothing
    records their columns, and no command reads them, so they are removed, too. Raises BadInput if
    a column is in no index, or if a task is damaged.
    """
    found = Pairs(keys={*selectors.keys, *known})
    tasks = [open_task(path) for path in places.of("task")]
    splits = [(task, task.split(name)) for task in tasks for name in task.manifest.splits]
    of_splits = [split.table for _, split in splits]
    tables = [*of_splits, *(read_known(path).table for path in places.of(TRIMMED))]
    _require_columns(selectors, {name for table in tables for name in table.column_names})
    for table in tables:
        for words, key in selectors.each(table):
            found.match(words, key)
    unlisted = [one for task, split in splits for one in _unlisted(task, split, tars)]
    for path, sample in unlisted:
        _add_sample(found, selectors, sample.key, tars.description(path, sample))
    if hidden := selectors.hidden_columns():
        found.evicted = {sample.key for _, sample in unlisted} - found.keys
        found.unlabelled = _unlabelled(tables, hidden) - found.keys
        for table in tables:
            listed = table["key"].filter(pa.array(is_among(table["key"], found.evicted)))
            found.evicted.difference_update(listed.to_pylist())
    for table in tables:
        rows = table.filter(pa.array(is_among(table["key"], found.keys)))
        found.images.update(_texts(rows["sha256"].to_pylist()))
        found.source_keys.update(_texts(rows["source_key"].to_pylist()))
    for table in of_splits if found.images else ():
        alike = table["key"].filter(pa.array(is_among(table["sha256"], found.images)))
        found.same_image.update(set(alike.to_pylist()) - found.keys)
    return found


def _unlisted(task: Task, split: Split, tars: Tars) -> Iterator[tuple[Path, TarSample]]:
    """The samples in a buffer's tars that its index does not list any more, and where they are."""
    shards = unlisted_shards(task, split)
    listed = set(split.keys) if shards else set()
    for path in (task.path / shard for shard in shards):
        yield from ((path, sample) for sample in tars.samples(path) if sample.key not in listed)


def _add_sample(
    found: Pairs, selectors: Selectors, key: str, description: dict[str, object]
) -> None:
    described = {"key": key, **description}
    for words in selectors.of_sample(described):
        found.match(words, key)
    if key in found.keys:
        found.images.update(_texts([described.get("sha256")]))
        found.source_keys.update(_texts([described.get("source_key")]))


def _texts(values: Iterable[object]) -> list[str]:
    return [one for one in values if isinstance(one, str)]


def _unlabelled(tables: Iterable[pa.Table], columns: Iterable[str]) -> set[str]:
    """The keys of the pairs that have no value in one of the columns, in any of the tables."""
    valued: dict[str, set[str]] = {name: set() for name in columns}
    every: set[str] = set()
    for table in tables:
        every.update(table["key"].to_pylist())
        for name in set(valued).intersection(table.column_names):
            column = table[name]
            has_N = pc.is_valid(column)
            if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
                has_N = pc.greater(pc.fill_null(pc.list_value_length(column), 0), 0)
            valued[name].update(table["key"].filter(has_N).to_pylist())
    return {key for key in every if not all(key in keys for keys in valued.values())}


def _require_columns(selectors: Selectors, columns: set[str]) -> None:
    for name, _ in selectors.columns:
        if name not in columns:
            raise BadInput(
                f"--where: no index has a column {name!r}; 'vlcpctl split --keep-columns' keeps "
                f"columns of the source (found: {some_names(sorted(columns)) or 'no index'})"
            )
