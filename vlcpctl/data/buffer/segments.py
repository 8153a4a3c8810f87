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

from vlcpctl.core.errors import BadInput
from vlcpctl.core.staging import link_or_copy
from vlcpctl.data.images.header import read_header
from vlcpctl.data.tasks.samples import Sample
from vlcpctl.data.tasks.shards import DEFAULT_SHARD_BYTES
from vlcpctl.data.tasks.tar import BLOCK, END, frame
from vlcpctl.data.tasks.task import Split

IndexRow = dict[str, Any]  # a row of the index, by column name


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

    def add(self, split: Split, row: int, record: IndexRow, task: str) -> IndexRow:
        """Copy one image with its captions into the current tar; returns its new index row.

        Raises BadInput if the image cannot be read.
        """
        image = split.image(row)
        sample = Sample(
            key=record["key"],
            source_key=record["source_key"],
            image=image,
            kind=read_header(image).kind,
            captions=record["captions"],
            label=record["label"],
            width=record["width"],
            height=record["height"],
            sha256=record["sha256"],
        )
        before, after = frame(sample, task)
        file = self._room_for(BLOCK + len(image) + len(after))
        offset = file.tell() + BLOCK
        file.writelines((before, image, after))
        self.rows[self._name] += 1
        return {**record, "shard": self._name, "offset": offset, "size": len(image), "task": task}

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
    split: Split, stays: np.ndarray, shard_rows: dict[str, int], writer: SegmentWriter
) -> list[IndexRow]:
    """Carry the items that stay over into a new directory; returns their index rows.

    A tar is hard-linked if at least half of its samples stay; otherwise the remaining samples are
    copied to a new tar. So at most half of the samples in a tar are evicted ones. `stays` is (N,)
    bool over the rows of `split`. Raises BadInput if a tar is missing or damaged.
    """
    numbers = np.flatnonzero(stays)
    records: list[IndexRow] = split.table.take(numbers).to_pylist()
    live = Counter(record["shard"] for record in records)
    unlisted = sorted(live.keys() - shard_rows.keys())
    if unlisted:
        raise BadInput(f"{split.path}: shard {unlisted[0]} is not among shard_rows in task.json")
    linked = {shard for shard, count in live.items() if 2 * count >= shard_rows[shard]}
    for shard in sorted(linked):
        _link(split.directory / shard, writer.directory / shard)
        writer.rows[shard] = shard_rows[shard]
    by_place = sorted(
        range(len(records)), key=lambda i: (records[i]["shard"], records[i]["offset"])
    )
    for i in by_place:
        if records[i]["shard"] not in linked:
            records[i] = writer.add(split, int(numbers[i]), records[i], records[i]["task"])
    return records


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
