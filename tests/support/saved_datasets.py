"""Directories as `datasets.save_to_disk` writes them, made with pyarrow alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from vlcpctl.testing.tiny_stream import make_image

CLASSES = ("cat", "dog")
FEATURES = {
    "image": {"_type": "Image"},
    "caption": {"_type": "List", "feature": {"dtype": "string", "_type": "Value"}},
    "label": {"_type": "ClassLabel", "names": list(CLASSES)},
    "kind": {"_type": "ClassLabel", "names": ["indoor", "outdoor"]},
}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(count: int, first: int = 0, **columns: pa.Array) -> pa.Table:
    """Images with two captions each and a class label, as `datasets` stores them."""
    numbers = range(first, first + count)
    images = [{"bytes": make_image(number, 8), "path": f"{number}.png"} for number in numbers]
    found = pa.table(
        {
            "image": pa.array(images, IMAGE),
            "caption": [[f"caption {number:04d}", "another"] for number in numbers],
            "label": pa.array([number % len(CLASSES) for number in numbers], pa.int64()),
            **columns,
        }
    )
    return found.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    )


def write_arrow(path: Path, content: pa.Table, *, rows: int = 7, **how: Any) -> Path:
    """The table as an Arrow stream, in batches of some rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = pa.ipc.IpcWriteOptions(**how)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, content.schema, options=options) as stream,
    ):
        stream.write_table(content, max_chunksize=rows)
    return path


def save_dataset(
    directory: Path, shards: Sequence[pa.Table], split: str | None = None, **state: object
) -> Path:
    """What `Dataset.save_to_disk` writes."""
    names = [f"data-{n:05d}-of-{len(shards):05d}.arrow" for n in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        write_arrow(directory / name, shard)
    files = [{"filename": name} for name in names]
    described = {"_data_files": files, "_split": split, "_fingerprint": "0", **state}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "state.json").write_text(json.dumps(described))
    (directory / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return directory


def save_dataset_dict(directory: Path, splits: Mapping[str, Sequence[pa.Table]]) -> Path:
    """What `DatasetDict.save_to_disk` writes."""
    for name, shards in splits.items():
        save_dataset(directory / name, shards)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return directory
