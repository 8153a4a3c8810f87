"""The tars of a buffer: written once, then hard-linked by updates until over half is evicted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.header import read_header
from vlcpctl.data.tasks.samples import Sample
from vlcpctl.data.tasks.shards import DEFAULT_SHARD_BYTES
from vlcpctl.data.tasks.tar import BLOCK, END, frame
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.outputs import link_or_copy

_ROWS_AT_ONCE = 1024  # that are Python objects
_OF_SAMPLES = ["key", "source_key", "captions", "label", "width", "height", "sha256"]


@dataclass
class SegmentWriter:
    """Appends samples to new numbered tars.

    An existing tar is never appended to: it may be hard-linked from the previous buffer.
    """

    directory: Path
    number: int  # of the next tar
    shard_bytes: int = DEFAULT_SHARD_BYTES
    rows: Counter[str] = field(default_factory=Counter)  # written into each tar
    _name: str = ""
    _file: BinaryIO | None = None

    def add(self, split: Split, numbers: np.ndarray, rows: pa.Table, task: str = "") -> pa.Table:
        """Copy the images of n rows into tars; returns the index rows with their new places.

        `numbers`, (n,), are those of `rows` in the split. With `task` they become rows of it;
        without, they keep theirs. Raises BadInput if an image cannot be read.
        """
        names: dict[str, int] = {}
        places = np.empty((len(rows), 2), dtype=np.int64)  # code of the tar, offset
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            records = rows.slice(start, _ROWS_AT_ONCE).select([*_OF_SAMPLES, "task"]).to_pylist()
            for place, record in enumerate(records, start=start):
                offset = self._add(split, int(numbers[place]), record, task or record["task"])
                places[place] = names.setdefault(self._name, len(names)), offset
        codes = pa.array(places[:, 0], pa.int32())
        shards = pa.DictionaryArray.from_arrays(codes, pa.array(list(names), pa.string()))
        found = with_column(rows, "shard", shards.cast(pa.string()))
        found = with_column(found, "offset", pa.array(places[:, 1]))
        return with_column(found, "task", pa.repeat(task, len(rows))) if task else found

    def _add(self, split: Split, row: int, record: dict[str, Any], task: str) -> int:
        image = split.image(row)
        fields = {name: record[name] for name in _OF_SAMPLES}
        sample = Sample(image=image, kind=read_header(image).kind, **fields)
        before, after = frame(sample, task)
        file = self._room_for(BLOCK + len(image) + len(after))
        offset = file.tell() + BLOCK
        file.writelines((before, image, after))
        self.rows[self._name] += 1
        return offset

    def close(self) -> None:
        """Finish the last tar."""
        if self._file is not None:
            with self._file as file:
                file.write(END)
            self._file = None

    def abandon(self) -> None:
        """Close the last tar without finishing it, after a failure; no-op after `close`."""
        if self._file is not None:
            with suppress(OSError):  # flushing the rest fails again if the disk is full
                self._file.close()
            self._file = None

    def _room_for(self, length: int) -> BinaryIO:
        file = self._file
        if file is not None and file.tell() + length + len(END) <= self.shard_bytes:
            return file
        self.close()
        self._name = f"train-{self.number:06d}.tar"
        self.number += 1
        self._file = (self.directory / self._name).open("xb")
        return self._file


def carry(
    split: Split, rows: pa.Table, numbers: np.ndarray, shard_rows: dict[str, int], to: SegmentWriter
) -> pa.Table:
    """Carry the rows that stay over into a new directory; returns their index rows, in any order.

    A tar is hard-linked if at least half of its samples stay; otherwise the remaining samples are
    copied to a new tar. So at most half of the samples in a tar are evicted ones. `numbers`, (n,),
    are those of `rows` in the split. Raises BadInput if a tar is missing or damaged.
    """
    counts = rows["shard"].value_counts().to_pylist()
    live = {one["values"]: one["counts"] for one in counts}
    unlisted = sorted(live.keys() - shard_rows.keys())
    if unlisted:
        raise BadInput(f"{split.path}: shard {unlisted[0]} is not among shard_rows in task.json")
    linked = sorted(shard for shard, count in live.items() if 2 * count >= shard_rows[shard])
    for shard in linked:
        _link(split.directory / shard, to.directory / shard)
        to.rows[shard] = shard_rows[shard]
    stays_N = pc.is_in(rows["shard"], value_set=pa.array(linked, rows["shard"].type)).to_numpy()
    moved = np.flatnonzero(~stays_N)
    by_place = rows.select(["shard", "offset"]).take(moved)
    order = pc.sort_indices(by_place, [("shard", "ascending"), ("offset", "ascending")]).to_numpy()
    moved = moved[order]
    return pa.concat_tables(
        [rows.filter(pa.array(stays_N)), to.add(split, numbers[moved], rows.take(moved))]
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


def _link(source: Path, target: Path) -> None:
    try:
        link_or_copy(source.resolve(), target)
    except FileNotFoundError as error:
        raise BadInput(f"{source} is missing; run 'vlcpctl check'") from error
