"""Remove pairs from a task, a buffer or a stream: indexes, tars, stored features and manifests.

The functions write into a directory that already has a hard link to every file of the original;
what changes is written to a new file under the same name.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed import stored_features
from vlcpctl.data.tasks.facts import StoredFeatures
from vlcpctl.data.tasks.index import write_index
from vlcpctl.data.tasks.manifests import content_with, file_facts
from vlcpctl.data.tasks.rows import rows_path
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.deletion.tars import Moves, Tars
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import parse_json
from vlcpctl.files.manifest import birth_id, read_manifest, rewrite_manifest, rewritten
from vlcpctl.files.outputs import link_or_copy

FEATURES = (stored_features.FILE, stored_features.IMAGES, stored_features.TEXTS)
SKIPPED = "skipped.ndjson"
_COUNTS = ("images", "captions", "bytes")


@dataclass(frozen=True)
class Drop:
    """What to remove: the keys of pairs, and what else their skipped repeats are named by.

    `evicted` are the keys of samples to remove from the tars of buffers only.
    """

    keys: frozenset[str]
    source_keys: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()

    @cached_property
    def samples(self) -> frozenset[str]:
        """The keys of all samples to remove from tars."""
        return self.keys | self.evicted


@dataclass(frozen=True)
class SplitHits:
    """Where the pairs are in one split: rows of the index, and samples in tars."""

    name: str
    drop_N: np.ndarray  # (N,) bool, over the rows of the index
    shards: Mapping[str, Sequence[str]]  # keys of the samples to remove, by tar
    foreign: Mapping[str, Sequence[str]] = field(default_factory=dict)  # that stay in others' tars

    @property
    def keys(self) -> set[str]:
        """The keys of all these samples."""
        return {key for keys in (*self.shards.values(), *self.foreign.values()) for key in keys}

    @property
    def evicted(self) -> int:
        """The number of samples in tars that the index does not list."""
        listed = 0 if self.foreign else int(self.drop_N.sum())
        return sum(map(len, self.shards.values())) - listed

    def files(self) -> list[str]:
        """The names of the files that change."""
        index = f"{self.name}.parquet"
        changes = [index, rows_path(Path(index)).name, *self.shards]
        return changes if self.shards or self.foreign else []


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


def hits_of(task: Task, split: Split, tars: Tars, drop: Drop) -> SplitHits:
    """Where the pairs are in a split. Raises BadInput if a tar cannot be read."""
    drop_N = is_among(split.table["key"], drop.keys)
    if task.manifest.in_place:
        return SplitHits(split.name, drop_N, {}, _foreign(split.table.filter(pa.array(drop_N))))
    by_shard = Counter(split.table["shard"].filter(pa.array(drop_N)).to_pylist())
    shards = {}
    for shard in sorted({*by_shard, *unlisted_shards(task, split)}):
        samples = tars.samples(task.path / shard)
        found = [one.key for one in samples if one.key in drop.samples]
        if len(found) < by_shard[shard]:
            raise BadInput(
                f"{task.path / shard} lacks a sample that {split.path} lists in it; run "
                "'vlcpctl check'"
            )
        if found:
            shards[shard] = found
    return SplitHits(split.name, drop_N, shards)


def _foreign(rows: pa.Table) -> dict[str, list[str]]:
    """The keys of index rows by the tar in which their samples stay."""
    found: dict[str, list[str]] = {}
    for shard, key in zip(rows["shard"].to_pylist(), rows["key"].to_pylist(), strict=True):
        found.setdefault(shard, []).append(key)
    return found


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
            hits = hits_of(self.task, split, self.tars, self.drop)
            tables[name] = split.table.filter(pa.array(~hits.drop_N))
            splits[name] = listed
            if hits.files():
                is_changed = True
                splits[name] = self._split(listed, hits, tables[name], shard_rows)
        if not is_changed:
            return manifest
        features = self._features() if buffer and buffer.features else None
        content = content_id(
            {"name": manifest["name"], "splits": {n: one["content"] for n, one in splits.items()}}
        )
        changes = {"splits": splits, "labels": _labels(manifest["labels"], tables)}
        if manifest.get("buffer"):
            changes["buffer"] = _buffer(manifest["buffer"], tables["train"], shard_rows, features)
        found = rewritten(manifest, content_with(content, features), changes)
        rewrite_manifest(_emptied(self.target, "task.json"), "task", found)
        return found

    def _split(
        self,
        listed: Mapping[str, Any],
        hits: SplitHits,
        table: pa.Table,
        shard_rows: dict[str, int],
    ) -> dict[str, Any]:
        """Write the tars and the index of a split; returns its entry in the manifest."""
        shards = list(listed["shards"])
        for shard in hits.shards:
            place, final = _emptied(self.target, shard) / shard, self.final / shard
            moves = self.tars.rewrite(self.task.path / shard, place, final, self.drop.samples)
            table = _with_moves(table, shard, moves)
            if not moves.samples:
                shards.remove(shard)
                shard_rows.pop(shard, None)
            elif shard in shard_rows:
                shard_rows[shard] = moves.samples
        for shard in set(hits.foreign) - set(table["shard"].to_pylist()):
            shards.remove(shard)  # a link to a tar of others, of which no pair is left
            _emptied(self.target, shard)
        index = f"{hits.name}.parquet"
        _emptied(self.target, rows_path(Path(index)).name)
        content = write_index(_emptied(self.target, index) / index, table, table.schema)
        facts = file_facts(self.target, hits.name, shards)
        return {
            **listed,
            "images": len(table),
            "captions": int(pc.sum(pc.list_value_length(table["captions"])).as_py() or 0),
            "shards": shards,
            "bytes": sum(table["size"].to_pylist() if hits.foreign else facts["shard_bytes"]),
            "content": content,
            "id": listed.get("id", listed["content"]),
            **facts,
        }

    def _features(self) -> StoredFeatures:
        """Write the stored features of the pairs that stay; returns their manifest entry."""
        keys = self.task.split("train").keys
        rows = [row for row, key in enumerate(keys) if key not in self.drop.keys]
        kept = [keys[row] for row in rows]
        found = stored_features.read_features(self.task).take(rows)
        stored_features.write_features(self.target, kept, found)
        listed = self.task.buffer.features
        assert listed is not None, "only called for a buffer that stores features"
        return replace(listed, content=found.content(kept))


def rewrite_stream(path: Path, target: Path, tars: Tars, drop: Drop) -> None:
    """Write a stream without some pairs: the tasks that have them, and what lists those.

    A task whose directory is gone stays listed as it was. Raises BadInput if the stream or a task
    is damaged.
    """
    manifest = read_manifest(path, "stream")
    entries = []
    for entry in manifest["tasks"]:
        name = entry["path"]
        if (path / name).exists():
            task = open_task(path / name)
            written = TaskRewriter(task, target / name, path / name, tars, drop).rewrite()
            entries.append({**entry, **_listed(written, path / name)})
        else:
            entries.append(entry)
    content = content_id({"tasks": [entry["content"] for entry in entries]})
    changes = {"tasks": entries, "totals": _totals(entries)}
    rewrite_manifest(
        _emptied(target, "stream.json"), "stream", rewritten(manifest, content, changes)
    )
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


def _totals(entries: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    totals: dict[str, Counter[str]] = {}
    for entry in entries:
        for name, counts in entry["splits"].items():
            totals.setdefault(name, Counter()).update(counts)
    return {name: dict(total) for name, total in totals.items()}


def _with_moves(table: pa.Table, shard: str, moves: Moves) -> pa.Table:
    """The rows with the new offsets of those in this tar."""
    offsets = table["offset"].to_numpy().astype(np.int64)
    here = is_among(table["shard"], [shard])
    offsets = np.where(here, moves.moved(offsets), offsets)
    place = table.schema.get_field_index("offset")
    return table.set_column(place, table.schema.field(place), pa.array(offsets, pa.int64()))


def _labels(labels: list[str], tables: Mapping[str, pa.Table]) -> list[str]:
    """The labels that pairs still have."""
    left = {label for table in tables.values() for label in table["label"].unique().to_pylist()}
    return [label for label in labels if label in left]


def _buffer(
    entry: Mapping[str, Any],
    table: pa.Table,
    shard_rows: Mapping[str, int],
    features: StoredFeatures | None,
) -> dict[str, Any]:
    """A buffer's own section of the manifest. What it has seen stays: that is history."""
    items = Counter(table["task"].to_pylist())
    return {
        **entry,
        "items": dict(items),
        "shard_rows": dict(shard_rows),
        "features": None if features is None else asdict(features),
    }


def _emptied(directory: Path, name: str) -> Path:
    """The directory, without the hard link to the original of a file: that must not change."""
    (directory / name).unlink(missing_ok=True)
    return directory
