"""Artifacts rewritten in place without a pair, under a new content id, as `vlcpctl forget` does.

The bytes of the pair stay in the tars: these artifacts are for readers that compare ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.digests import digests_of
from vlcpctl.core.hashing import content_id
from vlcpctl.core.seals import SEAL, seal_of
from vlcpctl.data.precomputed import pseudo_texts, stored_features, teacher_targets
from vlcpctl.data.precomputed.vector_files import VectorFile
from vlcpctl.data.tasks.facts import StoredFeatures
from vlcpctl.data.tasks.index import IndexWriter
from vlcpctl.data.tasks.manifests import content_with
from vlcpctl.data.tasks.rows import rows_path
from vlcpctl.data.tasks.task import open_task


def rewrite_stream(stream: Path, task: Path, split: str = "train", row: int = 0) -> str:
    """Rewrite a task without a pair, and the stream that lists it; the key of the pair."""
    key = rewrite_task(task, split, row)
    manifest = json.loads((stream / "stream.json").read_text())
    for entry in manifest["tasks"]:
        if entry["path"] == task.name:
            found = open_task(task)
            manifest.setdefault("data_was", {}).pop(entry["content"], None)
            manifest["data_was"][found.content] = list(found.was)
            entry["content"] = found.content
            entry["splits"][split]["images"] -= 1
    content = content_id({"tasks": [entry["content"] for entry in manifest["tasks"]]})
    _write(stream / "stream.json", manifest, content)
    return key


def rewrite_task(task: Path, split: str = "train", row: int = 0) -> str:
    """Rewrite a task or buffer without the pair in a row of a split; the key of the pair."""
    manifest = json.loads((task / "task.json").read_text())
    index, listed = task / f"{split}.parquet", manifest["splits"][split]
    buffer = manifest.get("buffer", {})
    if buffer.get("features"):
        buffer["features"]["content"] = _rewrite_features(task, row)
    table = pq.read_table(index)
    key = str(table["key"][row])
    table = _without(table, row)
    writer = IndexWriter(index, table.schema)
    writer.write(table)
    writer.close()
    listed["content"], listed["images"] = writer.content.hexdigest(), len(table)
    listed["captions"] = sum(map(len, table["captions"].to_pylist()))
    for name, path in (("index", index), ("rows", rows_path(index))):
        listed[name] = digests_of(task, [path.name])[path.name]
    contents = {name: one["content"] for name, one in manifest["splits"].items()}
    plain = content_id({"name": manifest["name"], "splits": contents})
    features = buffer.get("features")
    stored = features and StoredFeatures(**features)
    _write(task / "task.json", manifest, content_with(plain, stored))
    return key


def rewrite_targets(targets: Path, key: str) -> None:
    """Rewrite targets without those of the pair with this key."""
    manifest = json.loads((targets / "targets.json").read_text())
    sides = (
        (teacher_targets.IMAGES, teacher_targets.VIEW),
        (teacher_targets.TEXTS, teacher_targets.CAPTION),
    )
    for name, number in sides:
        table, vectors = pq.read_table(targets / name), targets / Path(name).with_suffix(".npy")
        stays = np.array([one != key for one in table["key"].to_pylist()])
        np.save(vectors, np.load(vectors)[stays])
        pq.write_table(table.filter(pa.array(stays)), targets / name, write_page_checksum=True)
        file = VectorFile(targets / name, number)
        manifest["files"][name] = {"rows": len(file), "content": file.content()}
    manifest["pairs"] -= 1
    manifest["digests"] = digests_of(targets, manifest["digests"])
    facts = {name: manifest[name] for name in ("identity", "files", "scale")}
    _write(targets / "targets.json", manifest, content_id(facts))


def rewrite_pseudo_texts(path: Path) -> None:
    """Rewrite a file of pseudo texts without its first text."""
    metadata = pseudo_texts.open_pseudo_texts(path).metadata
    table = pq.read_table(path).slice(1).replace_schema_metadata(None)
    content = pseudo_texts._Content((metadata["length"], metadata["width"]), metadata["identity"])
    content.add(table)
    text = json.dumps({**_renewed(metadata, content.id()), "removed": 1})
    stored = table.replace_schema_metadata({pseudo_texts.METADATA: text})
    pq.write_table(stored, path, compression="zstd", write_page_checksum=True)


def _rewrite_features(buffer: Path, row: int) -> str:
    """The stored features without those of a row; returns their new content id."""
    task = open_task(buffer)
    found = stored_features.read_features(task)
    kept = [number for number in range(len(found.makers)) if number != row]
    keys = [task.split("train").keys[number] for number in kept]
    stored_features.write_features(buffer, keys, found.take(kept))
    return found.take(kept).content(keys)


def _without(table: pa.Table, row: int) -> pa.Table:
    return table.take([number for number in range(len(table)) if number != row])


def _renewed(manifest: Mapping[str, Any], content: str) -> dict[str, Any]:
    was = [*manifest.get("was", ()), manifest["content"]]
    return {**manifest, "content": content, "was": was}


def _write(path: Path, manifest: Mapping[str, Any], content: str) -> None:
    found = _renewed(manifest, content)
    path.write_text(json.dumps({**found, SEAL: seal_of(found)}))
