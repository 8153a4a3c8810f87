"""The layout that img2dataset writes with output_format=webdataset, in a folder for each split.

SPLIT/00000.tar has the samples 000000000, 000000001, ...: an image, a .txt with one caption and a
.json. SPLIT/00000.parquet has a row for each sample, SPLIT/00000_stats.json the counts; it is
written last and marks the shard as complete. As in a list with a line for each caption, an image
with several captions becomes several samples.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.export.layout import Layout, Target, one_line, renamed
from vlcpctl.export.pairs import ExportedPair
from vlcpctl.export.tar_files import Place, TarFiles

_MOST_SAMPLES = 10_000  # of a shard: img2dataset's default number_sample_per_shard
_SIZES = ("width", "height", "original_width", "original_height")
_OWN = (
    *("caption", "key", "status", "error_message", *_SIZES, "sha256"),
    *("label", "task", "source_key", "pair_key"),
)


class Img2Dataset(Layout):
    """Writes the shards of each split."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._kept = renamed(target.selection.kept_columns, _OWN)
        self._shards: dict[str, _Shards] = {}

    def add(self, pair: ExportedPair) -> None:
        """See `Layout`."""
        if pair.split not in self._shards:
            directory = self.target.directory / pair.split
            schema = _schema(self._kept.values())
            self._shards[pair.split] = _Shards(directory, schema, self.target.shard_bytes)
        kept = {name: pair.kept.get(column, []) for column, name in self._kept.items()}
        for caption in pair.captions:
            self._shards[pair.split].add(pair, one_line(caption), kept)

    def close(self) -> None:
        """See `Layout`."""
        for shards in self._shards.values():
            shards.tars.close()

    def abandon(self) -> None:
        """See `Layout`."""
        for shards in self._shards.values():
            shards.tars.abandon()


class _Shards:
    """The shards of one split."""

    def __init__(self, directory: Path, schema: pa.Schema, most_bytes: int) -> None:
        self.directory, self.schema = directory, schema
        self.tars = TarFiles(directory, "{:05d}.tar", most_bytes, _MOST_SAMPLES, self._end)
        self._rows: list[dict[str, Any]] = []
        self._started = time.time()

    def add(self, pair: ExportedPair, caption: str, kept: dict[str, list[str]]) -> None:
        text = caption.encode()
        row = {**_row(pair, caption, _key(Place(0, 0))), **kept}
        place = self.tars.place_for(map(len, (pair.image, text, _described(row))))
        row["key"] = _key(place)
        self.tars.write(row["key"], {pair.kind: pair.image, "txt": text, "json": _described(row)})
        self._rows.append(row)

    def _end(self, number: int) -> None:
        """Write the table of a finished tar, then its counts."""
        table = pa.Table.from_pylist(self._rows, self.schema)
        pq.write_table(table, self.directory / f"{number:05d}.parquet")
        now = time.time()
        counts = {
            "count": len(table),
            "successes": len(table),
            "failed_to_download": 0,
            "failed_to_resize": 0,
            "duration": now - self._started,
            "start_time": self._started,
            "end_time": now,
            "status_dict": {"success": len(table)},
        }
        text = json.dumps(counts, indent=4)
        (self.directory / f"{number:05d}_stats.json").write_text(text, encoding="utf-8")
        self._rows, self._started = [], now


def _key(place: Place) -> str:
    """The name of a sample: five digits for its shard, four for its number there.

    >>> _key(Place(1, 5))
    '000010005'
    """
    return f"{place.tar:05d}{place.number:04d}"


def _row(pair: ExportedPair, caption: str, key: str) -> dict[str, Any]:
    sizes = (pair.width, pair.height, pair.width, pair.height)
    return {
        "caption": caption,
        "key": key,
        "status": "success",
        "error_message": None,
        **dict(zip(_SIZES, sizes, strict=True)),
        "sha256": pair.sha256,
        "label": pair.label,
        "task": pair.task,
        "source_key": pair.source_key,
        "pair_key": pair.key,
    }


def _described(row: dict[str, Any]) -> bytes:
    return json.dumps(row, indent=4).encode()


def _schema(kept: Iterable[str]) -> pa.Schema:
    own = [(name, pa.int32() if name in _SIZES else pa.string()) for name in _OWN]
    return pa.schema([*own, *((name, pa.list_(pa.string())) for name in kept)])
