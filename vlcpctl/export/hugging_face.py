"""The layout of a data set on the Hugging Face hub: Parquet shards that contain the images.

data/SPLIT-00000-of-00002.parquet has a row for each image. The metadata of its schema tells the
library `datasets` and the hub's viewer that the column `image` contains images.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.data.tasks.facts import CARD
from vlcpctl.export.data_card import data_card
from vlcpctl.export.layout import Layout, Target
from vlcpctl.export.pairs import ExportedPair

# What the hub calls the split, where that is another name.
_SPLIT_NAMES = {"val": "validation"}

_TEXTS = ("label", "key", "source_key", "task", "sha256")
_SIZES = ("width", "height")
_OWN = ("image", "captions", *_TEXTS, *_SIZES)

# A row group is what readers hold in memory at once.
_GROUP_BYTES = 32_000_000
_GROUP_ROWS = 1000


@dataclass(frozen=True)
class _Kind:
    """A kind of column: in Arrow, as a feature of `datasets`, and in the header of a card."""

    arrow: pa.DataType
    feature: dict[str, Any]
    card: dict[str, str]


_TEXT = _Kind(pa.string(), {"dtype": "string", "_type": "Value"}, {"dtype": "string"})
_NUMBER = _Kind(pa.int32(), {"dtype": "int32", "_type": "Value"}, {"dtype": "int32"})
# Lists are written as Sequence, which all versions read; version 4 calls them List.
_SEQUENCE = {"feature": _TEXT.feature, "_type": "Sequence"}
_LIST = _Kind(pa.list_(pa.string()), _SEQUENCE, {"sequence": "string"})
_IMAGE = _Kind(
    pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())]),
    {"_type": "Image"},
    {"dtype": "image"},
)


class HuggingFace(Layout):
    """Writes the Parquet shards of each split, and the card of the data set."""

    def __init__(self, target: Target) -> None:
        self.target = target
        (target.directory / "data").mkdir()
        # By its name here: the images of the source may have been kept, too.
        self._kept = {
            name: f"source_{name}" if name in _OWN else name
            for name in target.selection.kept_columns
        }
        self._columns = {
            "image": _IMAGE,
            "captions": _LIST,
            **dict.fromkeys(_TEXTS, _TEXT),
            **dict.fromkeys(_SIZES, _NUMBER),
            **dict.fromkeys(self._kept.values(), _LIST),
        }
        self._shards: dict[str, _Shards] = {}

    def add(self, pair: ExportedPair) -> None:
        """See `Layout`."""
        split = _SPLIT_NAMES.get(pair.split, pair.split)
        if split not in self._shards:
            features = {name: kind.feature for name, kind in self._columns.items()}
            schema = pa.schema(
                [pa.field(name, kind.arrow) for name, kind in self._columns.items()],
                {"huggingface": json.dumps({"info": {"features": features}})},
            )
            self._shards[split] = _Shards(self.target, split, schema)
        kept = {name: pair.kept.get(column, []) for column, name in self._kept.items()}
        own = {name: getattr(pair, name) for name in (*_TEXTS, *_SIZES, "captions")}
        image = {"bytes": pair.image, "path": f"{pair.key}.{pair.kind}"}
        self._shards[split].add({"image": image, **own, **kept}, len(pair.image))

    def close(self) -> None:
        """See `Layout`."""
        splits = [shards.close() for shards in self._shards.values()]
        files = {one["name"]: f"data/{one['name']}-*" for one in splits}
        listed = [{"name": name, **kind.card} for name, kind in self._columns.items()]
        info = {"features": listed, "splits": splits}
        card = data_card(self.target.selection, files, info)
        (self.target.directory / CARD).write_text(card, encoding="utf-8")

    def abandon(self) -> None:
        """See `Layout`."""
        for shards in self._shards.values():
            shards.abandon()


class _Shards:
    """The Parquet files of one split, written one after the other."""

    def __init__(self, target: Target, split: str, schema: pa.Schema) -> None:
        self.target, self.split, self.schema = target, split, schema
        self._rows: list[dict[str, Any]] = []
        self._held = 0  # bytes of images in these rows
        self._in_file = self._files = self._count = self._bytes = 0
        self._writer: ParquetFile | None = None

    def add(self, row: dict[str, Any], size: int) -> None:
        if self._in_file and self._in_file + size > self.target.shard_bytes:
            self._end()
        self._rows.append(row)
        self._held, self._in_file = self._held + size, self._in_file + size
        self._count, self._bytes = self._count + 1, self._bytes + size
        if self._held >= _GROUP_BYTES or len(self._rows) >= _GROUP_ROWS:
            self._flush()

    def close(self) -> dict[str, Any]:
        """Finish the files, and return what the card lists about the split."""
        self._end()
        for number in range(self._files):
            final = f"{self.split}-{number:05d}-of-{self._files:05d}.parquet"
            self._path(number).rename(self._path(number).with_name(final))
        return {"name": self.split, "num_bytes": self._bytes, "num_examples": self._count}

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def _path(self, number: int) -> Path:
        """The path of a file before the number of all files is known."""
        return self.target.directory / "data" / f"{self.split}-{number:05d}.parquet"

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = ParquetFile(
                self._path(self._files),
                self.schema,
                use_dictionary=["label", "task"],
                write_statistics=["label", "key", "task"],
            )
        if self._rows:
            self._writer.write(pa.Table.from_pylist(self._rows, self.schema))
        self._rows, self._held = [], 0

    def _end(self) -> None:
        self._flush()
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        self._files, self._in_file = self._files + 1, 0


class ParquetFile:
    """A Parquet file to write, which is closed whatever becomes of it.

    pyarrow's own writer leaves a file open if its first bytes do not fit on the disk.
    """

    def __init__(self, path: Path, schema: pa.Schema, **options: Any) -> None:
        self._file = pa.OSFile(str(path), "wb")
        try:
            self._writer = pq.ParquetWriter(self._file, schema, **options)
        except BaseException:
            self._close_file()
            raise

    def write(self, table: pa.Table) -> None:
        """Append a row group."""
        self._writer.write_table(table)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Close the file after an error; what it contains does not matter. Raises nothing."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # its destructor would try again
        self._close_file()

    def _close_file(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self._file.close()
