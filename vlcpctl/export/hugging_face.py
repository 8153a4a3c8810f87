"""The layout of a data set on the Hugging Face hub: Parquet shards that contain the images.

data/SPLIT-00000-of-00002.parquet has a row for each image. The metadata of its schema tells the
library `datasets` and the hub's viewer that the column `image` contains images.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.data.tasks.facts import CARD
from vlcpctl.export.data_card import data_card
from vlcpctl.export.pairs import ExportedPair, Selection

_Row = dict[str, Any]

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


def write_hugging_face(
    root: Path, pairs: Iterable[ExportedPair], selection: Selection, *, shard_bytes: int
) -> None:
    """Write pairs, split by split, as Parquet shards, and the card of the data set."""
    data = root / "data"
    data.mkdir()
    # By its name here: the images of the source may have been kept, too.
    kept = {name: f"source_{name}" if name in _OWN else name for name in selection.kept_columns}
    columns = {
        "image": _IMAGE,
        "captions": _LIST,
        **dict.fromkeys(_TEXTS, _TEXT),
        **dict.fromkeys(_SIZES, _NUMBER),
        **dict.fromkeys(kept.values(), _LIST),
    }
    features = {name: kind.feature for name, kind in columns.items()}
    schema = pa.schema(
        [pa.field(name, kind.arrow) for name, kind in columns.items()],
        {"huggingface": json.dumps({"info": {"features": features}})},
    )
    splits = []
    for split, some in groupby(pairs, key=attrgetter("split")):
        name = _SPLIT_NAMES.get(split, split)
        rows = (_row(pair, kept) for pair in some)
        splits.append({"name": name, **_write_split(data, name, rows, schema, shard_bytes)})
    files = {one["name"]: f"data/{one['name']}-*" for one in splits}
    listed = [{"name": name, **kind.card} for name, kind in columns.items()]
    card = data_card(selection, files, {"features": listed, "splits": splits})
    (root / CARD).write_text(card, encoding="utf-8")


def _row(pair: ExportedPair, kept: Mapping[str, str]) -> _Row:
    return {
        "image": {"bytes": pair.image, "path": f"{pair.key}.{pair.kind}"},
        **{name: getattr(pair, name) for name in (*_TEXTS, *_SIZES, "captions")},
        **{name: pair.kept.get(column, []) for column, name in kept.items()},
    }


def _write_split(
    data: Path, split: str, rows: Iterable[_Row], schema: pa.Schema, most_bytes: int
) -> dict[str, int]:
    """Write the shards of a split; returns what the card lists about it."""
    paths: list[Path] = []
    count = size = 0
    for number, groups in groupby(_groups(rows, most_bytes), key=itemgetter(0)):
        paths.append(data / f"{split}-{number:05d}.parquet")
        with _writer(paths[-1], schema) as writer:
            for _, group in groups:
                writer.write_table(pa.Table.from_pylist(group, schema))
                count += len(group)
                size += sum(map(_size, group))
    for path in paths:
        path.rename(path.with_stem(f"{path.stem}-of-{len(paths):05d}"))
    return {"num_bytes": size, "num_examples": count}


def _groups(rows: Iterable[_Row], most_bytes: int) -> Iterator[tuple[int, list[_Row]]]:
    """Groups of rows in memory, and the number of the file that each is for."""
    group: list[_Row] = []
    number = held = in_file = 0
    for row in rows:
        is_full = in_file > 0 and in_file + _size(row) > most_bytes
        if group and (is_full or held >= _GROUP_BYTES or len(group) >= _GROUP_ROWS):
            yield number, group
            group, held = [], 0
        if is_full:
            number, in_file = number + 1, 0
        group.append(row)
        held, in_file = held + _size(row), in_file + _size(row)
    yield number, group


def _size(row: _Row) -> int:
    """The bytes of the image."""
    return len(row["image"]["bytes"])


@contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """A writer of a Parquet file, which is closed whatever becomes of it.

    pyarrow's own leaves a file open if its bytes do not fit on the disk.
    """
    with ExitStack() as opened:
        file = pa.OSFile(str(path), "wb")
        opened.callback(file.close)
        writer = pq.ParquetWriter(
            file,
            schema,
            use_dictionary=["label", "task"],
            write_statistics=["label", "key", "task"],
        )
        try:
            yield writer
            writer.close()
        except BaseException:
            with suppress(OSError, pa.ArrowException):
                writer.close()
            writer.is_open = False  # its destructor would try again
            raise
