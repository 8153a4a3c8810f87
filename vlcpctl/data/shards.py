"""Write one split of a task: its tars, and the index that locates each image in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import UsageError
from vlcpctl.data.appending import Appender
from vlcpctl.data.index import IndexWriter
from vlcpctl.data.pairs import Bytes, Sample
from vlcpctl.data.tar import BLOCK, END, frame

DEFAULT_SHARD_BYTES = 256_000_000
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass
class SplitWriter:
    """Appends samples to numbered shards; `close` returns the split's entry in the manifest."""

    directory: Path
    split: str
    task: str
    appender: Appender
    shard_bytes: int = DEFAULT_SHARD_BYTES
    _shards: list[str] = field(default_factory=list)
    _used: int = 0
    _total: int = 0
    _images: int = 0
    _captions: int = 0

    def __post_init__(self) -> None:
        self._index = IndexWriter(self.directory / f"{self.split}.parquet")

    def extend(self, samples: list[Sample]) -> None:
        """Append samples; their images have been written when this returns."""
        pieces: list[Bytes] = []
        rows = []
        room = self.shard_bytes - len(END)
        for sample in samples:
            before, after = frame(sample, self.task)
            key, source_key, image, _, captions, label, width, height, sha256 = sample
            size = len(image)
            length = BLOCK + size + len(after)
            if not self._shards or (self._used and self._used + length > room):
                self._append(pieces)
                pieces = []
                self._next_shard()
            place = (self._shards[-1], self._used + BLOCK, size)
            rows.append(
                (key, source_key, *place, captions, label, self.task, width, height, sha256)
            )
            pieces += (before, image, after)
            self._used += length
            self._captions += len(captions)
        self._images += len(samples)
        self._append(pieces)
        self._index.extend(rows)

    def close(self) -> dict[str, Any]:
        """Finish the last shard and the index, and return the split's entry in the manifest."""
        if self._shards:
            self._end_shard()
        self._index.close()
        return {
            "images": self._images,
            "captions": self._captions,
            "shards": self._shards,
            "bytes": self._total,
            "content": self._index.content.hexdigest(),
        }

    def abandon(self) -> None:
        """Close open files after an error."""
        self._index.abandon()

    def _append(self, pieces: list[Bytes], *, last: bool = False) -> None:
        if pieces:
            self.appender.append(self.directory / self._shards[-1], pieces, last=last)

    def _next_shard(self) -> None:
        if self._shards:
            self._end_shard()
        self._shards.append(f"{self.split}-{len(self._shards):06d}.tar")
        self._used = 0

    def _end_shard(self) -> None:
        self._append([END], last=True)
        self._total += self._used + len(END)


def parse_bytes(text: str) -> int:
    """A size such as 256MB or 1GiB in bytes. Raises UsageError if it is not one.

    >>> parse_bytes("256MB"), parse_bytes("1 KiB"), parse_bytes("300")
    (256000000, 1024, 300)
    """
    cleaned = text.replace(" ", "").upper()
    number = cleaned.rstrip("KMGIB")
    unit = cleaned[len(number) :] or "B"
    if unit not in _UNITS or not number.replace(".", "", 1).isdigit():
        raise UsageError(f"{text!r} is not a size; write it like 256MB or 1GiB")
    size = int(float(number) * _UNITS[unit])
    if size < 1:
        raise UsageError(f"{text!r} is less than one byte; write it like 256MB or 1GiB")
    return size
