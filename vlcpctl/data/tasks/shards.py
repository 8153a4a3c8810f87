"""Write one split of a task: its tars, and the index that locates each image in them.

The images of a split that is made in place stay in tars of others, and its tars are links to those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import is_decimal
from vlcpctl.data.images.header import Bytes
from vlcpctl.data.tasks.facts import SplitManifest
from vlcpctl.data.tasks.index import IndexWriter, schema_with
from vlcpctl.data.tasks.kept_columns import MoreValues, with_more_values
from vlcpctl.data.tasks.manifests import file_facts
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.tar import BLOCK, END, Appender, frame

DEFAULT_SHARD_BYTES = 256_000_000
_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


def parse_bytes(text: str) -> int:
    """A size such as 256MB or 1GiB in bytes. Raises UsageError if it is not one.

    >>> parse_bytes("256MB"), parse_bytes("1 KiB"), parse_bytes("300")
    (256000000, 1024, 300)
    """
    cleaned = text.replace(" ", "").upper()
    number = cleaned.rstrip("KMGIB")
    unit = cleaned[len(number) :] or "B"
    if unit not in _UNITS or not is_decimal(number):
        raise UsageError(f"{text!r} is not a size; write it like 256MB or 1GiB")
    size = int(float(number) * _UNITS[unit])
    if not 1 <= size < 2**63:
        what = "less than one byte" if size < 1 else "too large"
        raise UsageError(f"{text!r} is {what}; write it like 256MB or 1GiB")
    return size


@dataclass
class SplitWriter:
    """Appends samples to numbered shards; `close` returns the split's entry in the manifest."""

    directory: Path
    split: str
    task: str
    appender: Appender
    shard_bytes: int = DEFAULT_SHARD_BYTES
    kept: tuple[str, ...] = ()  # columns of the sources that the index keeps
    _shards: list[str] = field(default_factory=list)
    _used: int = 0
    _total: int = 0
    _images: int = 0
    _captions: int = 0

    def __post_init__(self) -> None:
        path = self.directory / f"{self.split}.parquet"
        self._index = IndexWriter(path, schema_with(self.kept))

    def extend(self, samples: list[Pair]) -> None:
        """Append samples; their images have been written when this returns."""
        pieces: list[Bytes] = []
        rows = []
        room = self.shard_bytes - len(END)
        for sample in samples:
            before, after = frame(sample, self.task)
            image = sample.data
            size = len(image)
            length = BLOCK + size + len(after)
            if not self._shards or (self._used and self._used + length > room):
                self._append(pieces)
                pieces = []
                self._next_shard()
            place = (self._shards[-1], self._used + BLOCK, size)
            rows.append(self._row(sample, place))
            pieces += (before, image, after)
            self._used += length
        self._images += len(samples)
        self._append(pieces)
        self._index.extend(rows)

    @property
    def lacking(self) -> dict[str, int]:
        """The number of images without a value in each kept column, after `close`."""
        return self._index.lacking

    def close(self, repeats: MoreValues | None = None) -> SplitManifest:
        """Finish the last shard and the index, and return the split's entry in the manifest.

        `repeats` gives the kept values of rows that repeat a sample, by its key.
        """
        if self._shards:
            self._end_shard()
        self._index.close()
        if repeats is not None:
            self._index = with_more_values(self._index, repeats)
        return SplitManifest(
            images=self._images,
            captions=self._captions,
            shards=tuple(self._shards),
            bytes=self._total,
            content=self._index.content.hexdigest(),
            **file_facts(self.directory, self.split, self._shards),
        )

    def _row(self, sample: Pair, place: tuple[str, int, int]) -> tuple[object, ...]:
        """The row of the index of a sample whose image is in this tar, at this offset, so large."""
        self._captions += len(sample.captions)
        own = (sample.key, sample.source_key, *place, sample.captions, sample.label, self.task)
        return (*own, sample.width, sample.height, sample.sha256, *sample.kept)

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


@dataclass
class LinkingSplitWriter(SplitWriter):
    """Lists samples where they are, and makes a symbolic link to each tar that has some."""

    _links: dict[Path, str] = field(default_factory=dict)

    def extend(self, samples: list[Pair]) -> None:
        """Append samples whose tar and offset are known."""
        rows = []
        for sample in samples:
            assert sample.where is not None, "samples that are split in place"
            tar, offset = sample.where
            size = len(sample.data)
            rows.append(self._row(sample, (self._link_to(tar), offset, size)))
            self._total += size
        self._images += len(samples)
        self._index.extend(rows)

    def _link_to(self, tar: Path) -> str:
        name = self._links.get(tar)
        if name is None:
            name = self._links[tar] = f"{self.split}-{len(self._links):06d}.tar"
            (self.directory / name).symlink_to(tar)
            self._shards.append(name)
        return name

    def _end_shard(self) -> None:
        """Do nothing: the tar of others is complete."""
