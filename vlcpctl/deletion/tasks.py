"""Remove pairs from a task, a buffer or a stream: indexes, tars, stored features and manifests.

The functions write into a directory that already has a hard link to every file of the original;
what changes is written to a new file under the same name.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed import features
from vlcpctl.data.tasks.facts import StoredFeatures, content_with, file_facts
from vlcpctl.data.tasks.index import rows_path, write_index
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.deletion.tars import Tars
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import parse_json
from vlcpctl.files.manifest import birth_id, read_manifest, rewrite_manifest, rewritten
from vlcpctl.files.outputs import link_or_copy

FEATURES = (features.FILE, features.IMAGES, features.TEXTS)
SKIPPED = "skipped.ndjson"
_COUNTS = ("images", "captions", "bytes")


@dataclass(frozen=True)
class Drop:
    """What to remove: the keys of pairs, and what else their skipped repeats are named by."""

    keys: frozenset[str]
    source_keys: frozenset[str] = frozenset()


def is_among(column: pa.ChunkedArray, wanted: Iterable[str]) -> np.ndarray:
    """(N,) bool: which values of a column of text are among these."""
    values = pa.array(sorted(wanted), pa.string())
    found: np.ndarray = pc.is_in(column.cast(pa.string()), value_set=values).to_numpy()
    return found


def mirror(source: Path, target: Path) -> None:
    """Fill an empty directory with hard links to all files of another, or copies of them."""
    for path in sorted(source.iterdir()):
        place = target / path.name
        if path.is_dir() and not path.is_symlink():
            place.mkdir()
            shutil.copystat(path, place)
            mirror(path, place)
        else:
            link_or_copy(path, place)


def unlisted_shards(task: Task, split: Split) -> list[str]:
    """The tars of a buffer that contain samples which its index does not list."""
    if task.manifest.buffer is None:
        return []
    listed = Counter(split.column("shard"))
    recorded = task.manifest.buffer.shard_rows
    return [shard for shard, count in recorded.items() if count != listed[shard]]


def hits_of(
    task: Task, split: Split, tars: Tars, drop: Drop
) -> tuple[np.ndarray, dict[str, list[str]]]:
    """Where the pairs are in a split: which rows of the index, (N,) bool, and their keys by tar.

    The samples of tasks that were made in place stay in these tars. Raises BadInput if a tar cannot
    be read.
    """
    drop_N = is_among(split.table["key"], drop.keys)
    rows = split.table.filter(pa.array(drop_N))
    shards: dict[str, list[str]] = {}
    for shard, key in zip(rows["shard"].to_pylist(), rows["key"].to_pylist(), strict=True):
        shards.setdefault(shard, []).append(key)
    if task.manifest.in_place:
        return drop_N, shards
    for shard in {*shards, *unlisted_shards(task, split)}:
        samples = tars.samples(task.path / shard)
        found = [one.key for one in samples if one.key in drop.keys]
        if len(found) < len(shards.get(shard, ())):
            raise BadInput(
                f"{task.path / shard} lacks a sample that {split.path} lists in it; run "
                "'vlcpctl check'"
            )
        shards[shard] = found
    return drop_N, {shard: keys for shard, keys in sorted(shards.items()) if keys}


@dataclass
class TaskRewriter:
    """Writes a task without some pairs; `target` will be renamed to `final`."""

    task: Task
    target: Path
    final: Path
    tars: Tars
    drop: Drop

    def rewrite(self) -> dict[str, Any]:
        """Write what changes; returns the new manifest, or the old one if nothing does.

        Raises BadInput if the task is damaged.
        """
        manifest = read_manifest(self.task.path, "task")
        splits, tables = {}, {}
        buffer = self.task.manifest.buffer
        shard_rows = {} if buffer is None else dict(buffer.shard_rows)
        is_changed = False
        for name, listed in manifest["splits"].items():
            split = self.task.split(name)
            drop_N, shards = hits_of(self.task, split, self.tars, self.drop)
            tables[name] = split.table.filter(pa.array(~drop_N))
            splits[name] = listed
            if shards:
                is_changed = True
                written = self._tars(list(shards), tables[name], shard_rows)
                splits[name] = {**listed, **self._index(name, listed, *written)}
        if not is_changed:
            return manifest
        stored = self._features() if buffer and buffer.features else None
        content = content_id(
            {"name": manifest["name"], "splits": {n: one["content"] for n, one in splits.items()}}
        )
        left = {one for table in tables.values() for one in table["label"].unique().to_pylist()}
        labels = [label for label in manifest["labels"] if label in left]
        changes: dict[str, Any] = {"splits": splits, "labels": labels}
        if manifest.get("buffer"):  # what it has seen stays: that is history
            changes["buffer"] = {
                **manifest["buffer"],
                "items": dict(Counter(tables["train"]["task"].to_pylist())),
                "shard_rows": shard_rows,
                "features": None if stored is None else asdict(stored),
            }
        found = rewritten(manifest, content_with(content, stored), changes)
        rewrite_manifest(_emptied(self.target, "task.json"), "task", found)
        return found

    def _tars(
        self, shards: Sequence[str], table: pa.Table, shard_rows: dict[str, int]
    ) -> tuple[pa.Table, set[str]]:
        """Write tars of a split; returns its rows that are left, and the tars without any."""
        if self.task.manifest.in_place:  # they are links to tars of others
            return table, set(shards).difference(table["shard"].to_pylist())
        moves = {}
        for shard in shards:
            place, final = _emptied(self.target, shard) / shard, self.final / shard
            moves[shard] = self.tars.rewrite(self.task.path / shard, place, final, self.drop.keys)
            if shard in shard_rows:
                shard_rows[shard] = len(moves[shard])
                if not moves[shard]:
                    del shard_rows[shard]
        columns = (table[name].to_pylist() for name in ("shard", "key", "offset"))
        offsets = [
            at - moves[shard][key] if shard in moves else at
            for shard, key, at in zip(*columns, strict=True)
        ]
        column = table.schema.get_field_index("offset")
        field = table.schema.field(column)
        table = table.set_column(column, field, pa.array(offsets, field.type))
        return table, {shard for shard in shards if not moves[shard]}

    def _index(
        self, name: str, listed: Mapping[str, Any], table: pa.Table, gone: Collection[str]
    ) -> dict[str, Any]:
        """Write the index of a split; returns what its entry in the manifest has of it."""
        index = Path(f"{name}.parquet")
        for old in (*gone, index.name, rows_path(index).name):
            _emptied(self.target, old)
        content = write_index(self.target / index, table, table.schema)
        shards = [shard for shard in listed["shards"] if shard not in gone]
        facts = file_facts(self.target, name, shards)
        sizes = table["size"].to_pylist() if self.task.manifest.in_place else facts["shard_bytes"]
        return {
            "images": len(table),
            "captions": int(pc.sum(pc.list_value_length(table["captions"])).as_py() or 0),
            "shards": shards,
            "bytes": sum(sizes),
            "content": content,
            "id": listed.get("id", listed["content"]),
            **facts,
        }

    def _features(self) -> StoredFeatures:
        """Write the stored features of the pairs that stay; returns their manifest entry."""
        keys = self.task.split("train").keys
        rows = [row for row, key in enumerate(keys) if key not in self.drop.keys]
        kept = [keys[row] for row in rows]
        found = features.read_features(self.task).take(rows)
        features.write_features(self.target, kept, found)
        listed = self.task.buffer.features
        assert listed is not None, "only called for a buffer that stores features"
        return replace(listed, content=found.content(kept))


def rewrite_stream(path: Path, target: Path, tars: Tars, drop: Drop) -> None:
    """Write a stream without some pairs: the tasks that have them, and what lists those.

    A task whose directory is gone stays listed as it was. Raises BadInput if the stream or a task
    is damaged.
    """
    manifest = read_manifest(path, "stream")
    entries, totals = [], dict[str, Counter[str]]()
    for entry in manifest["tasks"]:
        place, listed = path / entry["path"], entry
        if place.exists():
            rewriter = TaskRewriter(open_task(place), target / entry["path"], place, tars, drop)
            listed = {**entry, **_listed(rewriter.rewrite(), place)}
        entries.append(listed)
        for name, counts in listed["splits"].items():
            totals.setdefault(name, Counter()).update(counts)
    content = content_id({"tasks": [entry["content"] for entry in entries]})
    changes = {"tasks": entries, "totals": {name: dict(one) for name, one in totals.items()}}
    found = rewritten(manifest, content, changes)
    rewrite_manifest(_emptied(target, "stream.json"), "stream", found)
    if skipped_lines(path, drop):
        kept = [line for line in _lines(path / SKIPPED) if not _names(line, drop)]
        (_emptied(target, SKIPPED) / SKIPPED).write_bytes(b"".join(kept))


def skipped_lines(stream: Path, drop: Drop) -> int:
    """The number of lines about these pairs in a stream's list of skipped samples."""
    return sum(_names(line, drop) for line in _lines(stream / SKIPPED))


def _lines(path: Path) -> Iterator[bytes]:
    if path.is_file():
        with path.open("rb") as file:
            yield from file


def _names(line: bytes, drop: Drop) -> bool:
    """Whether a line about a skipped sample names one of the pairs: by key, or as its member."""
    try:
        row = parse_json(line)
    except ValueError:
        return False
    if not isinstance(row, dict):
        return False
    place, detail = str(row.get("place")), str(row.get("detail"))
    if any(key in drop.keys for key in detail.replace(")", " ").split()):
        return True
    member = place.removeprefix("member ")
    names = {member, member.rpartition("/")[2].partition(".")[0], member.rpartition(".")[0]}
    return place != member and bool(names & drop.source_keys)


def _listed(manifest: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """What stream.json lists of a task."""
    counts = {
        name: {field: split[field] for field in _COUNTS}
        for name, split in manifest["splits"].items()
    }
    own, content = birth_id(manifest, place), manifest["content"]
    return {"content": content, **({"id": own} if own != content else {}), "splits": counts}


def _emptied(directory: Path, name: str) -> Path:
    """The directory, without the hard link to the original of a file: that must not change."""
    (directory / name).unlink(missing_ok=True)
    return directory
