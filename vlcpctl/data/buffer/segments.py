"""The tars of a buffer: written once, then hard-linked by updates until over half is evicted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.header import read_header
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.tars import TarWriter
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.outputs import link_or_copy

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
