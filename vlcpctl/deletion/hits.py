"""Where the pairs of a request are stored: in each artifact and file, and how much of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vlcpctl.core.digests import FileDigest, verify_files
from vlcpctl.core.manifest import MANIFESTS, read_manifest
from vlcpctl.core.recorded_files import RESTORE
from vlcpctl.core.structs import converted
from vlcpctl.core.versions import WAS
from vlcpctl.data.precomputed.pseudo_texts import (
    PARENTS,
    open_pseudo_texts,
    texts_of_parents,
)
from vlcpctl.data.precomputed.teacher_targets import open_targets
from vlcpctl.data.splitting.known_keys import SPLIT, read_known
from vlcpctl.data.tasks import exported
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.data.tasks.task import Task
from vlcpctl.deletion import reports
from vlcpctl.deletion.places import CACHED, KNOWN, PSEUDO_TEXTS, RANKS, Stored
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import FEATURES, SKIPPED, Drop, hits_of, skipped_lines
from vlcpctl.evaluation.embedding_cache import samples_of
from vlcpctl.evaluation.embedding_files import keys_of, part_files, rows_of
from vlcpctl.evaluation.rank_files import named_in, rows_about

_TRAINED = frozenset({"train", "val"})  # splits that a model depends on; others are only evaluated


@dataclass
class Hit:
    """Pairs in one artifact or file: `removed` counts them by split, or rows by what they are."""

    stored: Stored
    removed: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)  # that contain them; relative paths
    keys: set[str] = field(default_factory=set)  # of the pairs that are in it
    shown: str = ""  # the kind in words, if that is another
    foreign: Counter[str] = field(default_factory=Counter)  # pairs that stay, by the tar of others

    @property
    def kind(self) -> str:
        """The kind of artifact, as receipts call it."""
        return self.shown or self.stored.kind

    @property
    def path(self) -> Path:
        """The path of the artifact or file."""
        return self.stored.path

    @property
    def is_deleted(self) -> bool:
        """Whether it is deleted as a whole, not written again without the pairs."""
        return self.stored.kept is not None or self.stored.kind in {CACHED, exported.KIND}

    @property
    def trains(self) -> bool:
        """Whether a model that is trained with it depends on the pairs."""
        return trains(self.kind, self.removed)

    def add(self, name: str, count: int, files: list[str]) -> None:
        """Count pairs or rows, if there are any, in these files."""
        if count:
            self.removed[name] = count
        if files:
            self.files += files


def trains(kind: str, removed: Collection[str]) -> bool:
    """Whether models are trained on the pairs that an artifact has, counted under these names."""
    if kind in {"task", "buffer", KNOWN}:
        return not _TRAINED.isdisjoint(removed)
    return kind in {"targets", PSEUDO_TEXTS}


def ids_of(stored: Stored) -> list[str]:
    """The content id of an artifact, after its earlier ones; [] for files that have none.

    Raises BadInput if its manifest cannot be read.
    """
    if stored.kind in {RANKS, CACHED}:
        return []
    if stored.kind == KNOWN:
        return [read_known(stored.path).content]
    if stored.kind == PSEUDO_TEXTS:
        manifest = open_pseudo_texts(stored.path).metadata
    else:
        manifest = read_manifest(stored.path, stored.kind)
    return [*manifest.get(WAS, ()), str(manifest["content"])]


def hit_of(stored: Stored, drop: Drop, tars: Tars) -> Hit | None:
    """Where the pairs are in an artifact or file; None if nowhere.

    Raises BadInput if it is damaged, so that what it contains is not known.
    """
    hit = Hit(stored)
    if stored.kind == "task":
        _in_task(hit, drop, tars)
    elif stored.kind in _LOOKERS:
        _LOOKERS[stored.kind](hit, drop)
    return hit if hit.removed else None


def _in_task(hit: Hit, drop: Drop, tars: Tars) -> None:
    task = Task(hit.path, read_task(hit.path))
    for name in task.manifest.splits:
        found = hits_of(task, task.split(name), tars, drop)
        hit.keys |= found.keys
        for shard, keys in found.foreign.items():
            hit.foreign[os.path.realpath(hit.path / shard)] += len(keys)
        hit.add(name, int(found.drop_N.sum()), found.files())
        hit.add("evicted", found.evicted, [])
    hit.keys &= drop.keys
    if hit.removed:
        buffer = task.manifest.buffer
        hit.shown = "task" if buffer is None else "buffer"
        hit.files += [*(FEATURES if buffer and buffer.features else ()), MANIFESTS["task"]]


def _in_stream(hit: Hit, drop: Drop) -> None:
    hit.add("skipped", skipped_lines(hit.path, drop), [SKIPPED])


def _in_targets(hit: Hit, drop: Drop) -> None:
    targets = open_targets(hit.path)
    for file in (targets.images, targets.texts):
        count = sum(key in drop.keys for key in file.keys)
        hit.keys.update(drop.keys.intersection(file.keys))
        name = file.path.name
        hit.add(file.path.stem, count, [name, f"{file.path.stem}.npy"] if count else [])
    if hit.removed:
        hit.files.append(MANIFESTS["targets"])


def _in_embeddings(hit: Hit, drop: Drop) -> None:
    manifest = read_manifest(hit.path, "embeddings")
    place = f"{hit.path / MANIFESTS['embeddings']}, digests"
    recorded = converted(manifest["digests"], dict[str, FileDigest], place)
    verify_files(hit.path, recorded, advice=RESTORE)
    hit.keys = keys_of(hit.path) & drop.keys
    for part, drop_N in rows_of(hit.path, drop.keys).items():
        if drop_N.any():
            hit.removed["rows"] = hit.removed.get("rows", 0) + int(drop_N.sum())
            hit.files += part_files(part)
    if hit.removed:
        hit.files.append(MANIFESTS["embeddings"])


def _in_report(hit: Hit, drop: Drop) -> None:
    hit.keys = reports.keys_of(hit.path) & drop.keys
    if hit.keys:
        lines = reports.files_with(hit.path, hit.keys)
        hit.add("examples", max(1, sum(lines.values())), [*lines, reports.SUMMARY])


def _in_pseudo_texts(hit: Hit, drop: Drop) -> None:
    file = open_pseudo_texts(hit.path)
    hit.add("texts", int(texts_of_parents(file, drop.keys).sum()), [""])
    for name in PARENTS:
        hit.keys.update(drop.keys.intersection(file.column_of_texts(name).to_pylist()))


def _in_ranks(hit: Hit, drop: Drop) -> None:
    query_N, wrong_N = rows_about(hit.path, drop.keys)
    hit.add("queries", int(query_N.sum()), [])
    hit.add("answers", int(np.count_nonzero(wrong_N & ~query_N)), [])
    hit.files, hit.keys = [""], named_in(hit.path) & drop.keys


def _in_known(hit: Hit, drop: Drop) -> None:
    table = read_known(hit.path).table
    for key, split in zip(table["key"].to_pylist(), table[SPLIT].to_pylist(), strict=True):
        if key in drop.keys:
            hit.keys.add(key)
            name = split or "train"  # version 0.3.0 did not record it
            hit.removed[name] = hit.removed.get(name, 0) + 1
    hit.files = [""] if hit.keys else []


def _in_export(hit: Hit, drop: Drop) -> None:
    counts = exported.exported_counts(hit.path, drop.keys)
    hit.keys = set(counts)
    for split in dict.fromkeys(split for found in counts.values() for split in found):
        hit.add(split, sum(found.get(split, 0) for found in counts.values()), [])
    if counts:
        names = [*read_manifest(hit.path, exported.KIND)["digests"], exported.MANIFEST]
        # A deletion that was interrupted has deleted some of them.
        hit.files = [name for name in names if os.path.lexists(hit.path / name)]


def _in_cache(hit: Hit, drop: Drop) -> None:
    hit.keys = samples_of(hit.path) & drop.keys
    hit.add("pairs", len(hit.keys), [""] if hit.keys else [])


_LOOKERS: dict[str, Callable[[Hit, Drop], None]] = {
    "stream": _in_stream,
    "targets": _in_targets,
    "embeddings": _in_embeddings,
    "report": _in_report,
    PSEUDO_TEXTS: _in_pseudo_texts,
    RANKS: _in_ranks,
    KNOWN: _in_known,
    CACHED: _in_cache,
    exported.KIND: _in_export,
}
