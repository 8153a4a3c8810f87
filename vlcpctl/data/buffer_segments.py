"""The tars of a buffer: written once, then linked from update to update until half is given up."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images import look
from vlcpctl.data.pairs import Sample
from vlcpctl.data.shards import DEFAULT_SHARD_BYTES
from vlcpctl.data.tar import BLOCK, END, frame
from vlcpctl.data.task import Split

Row = dict[str, Any]  # of the index


@dataclass
class SegmentWriter:
    """Appends samples to new numbered tars; never to one that is there already."""

    directory: Path
    number: int  # of the next tar
    shard_bytes: int = DEFAULT_SHARD_BYTES
    rows: Counter[str] = field(default_factory=Counter)  # written into each tar
    _name: str = ""
    _file: BinaryIO | None = None

    def add(self, split: Split, row: int, record: Row, task: str) -> Row:
        """Copy one image with its captions; returns its row of the index at the new place."""
        image = split.image(row)
        sample = Sample(
            key=record["key"],
            source_key=record["source_key"],
            image=image,
            kind=look(image).kind,
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
        """Let go of the last tar, if it is not finished because the work has failed."""
        if self._file is not None:
            with suppress(OSError):  # what it still holds back may not fit on the disk
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
) -> list[Row]:
    """Take the items that stay into a new directory; returns their rows of the index there.

    A tar of which at least half stays is linked as it is; of another, what stays is written anew.
    """
    numbers = np.flatnonzero(stays)
    records: list[Row] = split.table.take(numbers).to_pylist()
    live = Counter(record["shard"] for record in records)
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
    """A number that no tar has.

    >>> next_number(["train-000000.tar", "train-000004.tar"])
    5
    """
    numbers = [int(found[1]) for shard in shards if (found := re.search(r"-(\d+)\.tar$", shard))]
    return max(numbers, default=-1) + 1


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        _copy(source, target)  # another device, or a file system without hard links


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError as error:
        raise BadInput(f"{source} is missing; run 'vlcpctl check'") from error
