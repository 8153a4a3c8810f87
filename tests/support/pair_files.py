"""Parquet files and tars of pairs as users have them, for the tests of splitting."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.sources.pairs import Columns, check, pairs
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.testing.tiny_stream import make_image

GROUPS = ("food", "travel & places", "art")


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows with an image, a caption, a group, a label, a date and a split."""
    return [
        {
            "image": make_image(number, 8),
            "caption": f"caption {number}",
            "id": f"id-{number}",
            "group": GROUPS[number % 3],
            "label": f"class {number % 5}",
            "date": f"2024-{number % 12 + 1:02d}-01",
            "split": ("train", "train", "test", "val")[number % 4],
        }
        for number in range(first, first + count)
    ]


def write_parquet(path: Path, rows_: Iterable[Mapping[str, Any]], **columns: pa.DataType) -> Path:
    """The rows as a Parquet file; the types of columns are guessed unless given."""
    table = pa.Table.from_pylist([dict(row) for row in rows_])
    for name, kind in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(kind))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=7)
    return path


def write_tar(path: Path, members: Mapping[str, bytes], kind: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar with these members, by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=kind) as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def read_pairs(*sources: Path, images: bool = True, **columns: Any) -> list[Pair]:
    """The pairs of these sources, as `split` reads them."""
    wanted = Columns(**columns)
    files = [file for one in find_inputs(list(map(str, sources))) for file in one.files]
    for file in files:
        check(file, wanted)
    return [one for file in files for batch in pairs(file, wanted, images=images) for one in batch]


def img2dataset_members(count: int, first: int = 0) -> dict[str, bytes]:
    """What img2dataset writes: jpg, json and txt under a number."""
    members = {}
    for number in range(first, first + count):
        key = f"{number:09d}"
        described = {"key": key, "caption": f"caption {number}", "url": "x", "status": "success"}
        members[f"{key}.jpg"] = make_image(number, 16, "JPEG")
        members[f"{key}.json"] = json.dumps(described, indent=4).encode()
        members[f"{key}.txt"] = f"caption {number}".encode()
    return members
