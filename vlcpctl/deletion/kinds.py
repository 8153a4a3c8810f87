"""What a deletion does with each kind of artifact that has some of the pairs.

What can be made again from what still exists is deleted; rows are left out of the rest.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from vlcpctl.data.classification.class_folder import TEMPLATES
from vlcpctl.data.precomputed import teacher_targets
from vlcpctl.data.precomputed.pseudo_texts import PARENTS, open_pseudo_texts, texts_of_parents
from vlcpctl.data.splitting.known_keys import SPLIT, read_known
from vlcpctl.data.tasks.export_manifest import CARD, ExportManifest
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.deletion import reports
from vlcpctl.deletion.lineage import Dependent, ids_of
from vlcpctl.deletion.places import CACHED, RANKS, TEXTS, TRIMMED, Places, Stored
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import (
    FEATURES,
    SKIPPED,
    Drop,
    TaskRewriter,
    hits_of,
    is_among,
    rewrite_stream,
    skipped_lines,
)
from vlcpctl.evaluation import embedding_files, rank_files
from vlcpctl.evaluation.embedding_cache import samples_of
from vlcpctl.files.digests import RESTORE, FileDigest, digests_of, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import converted
from vlcpctl.files.manifest import (
    MANIFESTS,
    manifest_as,
    read_manifest,
    rewrite_manifest,
    rewritten,
)

_TRAINED = frozenset({"train", "val"})  # splits that a model depends on; others are only evaluated
_EARLIER = "of earlier data"  # exported before a deletion in the task: it may have those pairs


@dataclass
class Hit:
    """Pairs in one artifact or file: `removed` counts them by split, or rows by what they are.

    `again` is how it is made again, if it is deleted for that; `foreign` counts pairs that stay in
    the tars of others.
    """

    stored: Stored
    kind: str  # as receipts call it
    removed: dict[str, int] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)  # that contain them; relative paths
    foreign: Counter[str] = field(default_factory=Counter)
    again: str | None = None

    @property
    def path(self) -> Path:
        """The path of the artifact or file."""
        return self.stored.path

    @property
    def action(self) -> Literal["deleted", "rewritten"]:
        """Whether it is deleted as a whole, or written again without the pairs."""
        return "rewritten" if self.again is None and self.stored.kept is None else "deleted"

    @property
    def trains(self) -> bool:
        """Whether a model that is trained with it depends on the pairs."""
        if self.kind in {"task", "buffer", TRIMMED}:
            return not _TRAINED.isdisjoint(self.removed)
        return self.kind in {"targets", TEXTS}


@dataclass
class Search:
    """What is searched for; `tasks` has the content of each task by its ids, and what it had."""

    drop: Drop
    tars: Tars
    tasks: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)


def hits_in(places: Places, search: Search, made: Iterable[Dependent]) -> list[Hit]:
    """All artifacts and files with some of the pairs; `made` is what artifacts were made from.

    Raises BadInput if one is damaged.
    """
    models = [one for one in places.stored if one.kind in {"task", "checkpoint"} and not one.kept]
    there = {content for one in models for content in ids_of(one)}
    # Only their test pairs are there.
    there -= {read_known(path).content for path in places.of(TRIMMED)}
    can_be_made = {one.path for one in made if one.data | one.models <= there}
    stored = [one for one in places.stored if one.kind in KINDS]
    hits = []
    for one in sorted(stored, key=lambda one: one.kind != "task"):
        hit, kind = Hit(one, one.kind), KINDS[one.kind]
        kind.look(search, hit)
        if hit.removed:
            hit.files = hit.files or written_files(one)
            if kind.write is None or (kind.is_derived and one.path in can_be_made):
                hit.again = _line(one)
            hits.append(hit)
    return hits


def written_files(stored: Stored) -> list[str]:
    """The relative paths of the files of an artifact, or "" for a file.

    Without those that its maker did not write, or that people edit and did.
    """
    if stored.path.is_file():
        return [""]
    manifest, own = read_manifest(stored.path, stored.kind), MANIFESTS[stored.kind]
    names = {*manifest["digests"], own, *(str(one) for one in Path(own).parents if one.name)}
    found = [name for name in all_files(stored.path) if names & {name, name.partition("/")[0]}]
    for name in {CARD, TEMPLATES}.intersection(all_files(stored.path)):
        recorded = {CARD: manifest.get("card"), **manifest["digests"]}.get(name)
        is_same = recorded is not None and digests_of(stored.path, [name])[name] == recorded
        found = [*(one for one in found if one != name), *([name] if is_same else [])]
    return found


def all_files(directory: Path) -> list[str]:
    """The relative paths of all files and symbolic links below a directory."""
    found = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(directory).as_posix() for path in found)


def _line(stored: Stored) -> str:
    """The command line that made an artifact; "" if what needs it makes it again."""
    if stored.kind == CACHED:
        return ""
    if stored.kind == TEXTS:
        return "vlcpctl invert-texts"  # a file of texts does not record its line
    words = dict(read_manifest(stored.path, stored.kind).get("made_by") or {}).get("argv") or [""]
    # Rows that the same line has written are of the data as it was.
    force = ["--force"] if stored.kind == "embeddings" else []
    return shlex.join(["vlcpctl", *map(str, words[1:2]), *force, *map(str, words[2:])])


def _in_task(search: Search, hit: Hit) -> None:
    task, ids = Task(hit.path, read_task(hit.path)), ids_of(hit.stored)
    buffer = task.manifest.buffer
    hit.kind = "task" if buffer is None else "buffer"
    for name in task.manifest.splits:
        found = hits_of(task, task.split(name), search.tars, search.drop)
        hit.keys |= found.keys & search.drop.keys
        hit.files += found.files()
        for shard, keys in found.foreign.items():
            hit.foreign[os.path.realpath(hit.path / shard)] += len(keys)
        hit.removed |= _counts({name: int(found.drop_N.sum()), "evicted": found.evicted})
    hit.files += [*(FEATURES if buffer and buffer.features else ()), MANIFESTS["task"]]
    search.tasks |= dict.fromkeys(ids, (ids[-1], hit.removed))


def _in_stream(search: Search, hit: Hit) -> None:
    hit.removed, hit.files = _counts({"skipped": skipped_lines(hit.path, search.drop)}), [SKIPPED]


def _in_targets(search: Search, hit: Hit) -> None:
    targets = teacher_targets.open_targets(hit.path)
    for file in (targets.images, targets.texts):
        keys = search.drop.keys.intersection(file.keys)
        hit.removed |= _counts({file.path.stem: sum(key in keys for key in file.keys)})
        hit.keys |= keys


def _in_embeddings(search: Search, hit: Hit) -> None:
    manifest = read_manifest(hit.path, "embeddings")
    place = f"{hit.path / MANIFESTS['embeddings']}, digests"
    recorded = converted(manifest["digests"], dict[str, FileDigest], place)
    verify_files(hit.path, recorded, advice=RESTORE)
    rows = embedding_files.rows_of(hit.path, search.drop.keys).values()
    hit.removed = _counts({"rows": sum(int(drop_N.sum()) for drop_N in rows)})
    hit.keys = embedding_files.keys_of(hit.path) & search.drop.keys


def _in_report(search: Search, hit: Hit) -> None:
    hit.keys = reports.keys_of(hit.path) & search.drop.keys
    if hit.keys:
        lines = reports.files_with(hit.path, hit.keys)
        hit.removed = {"examples": max(1, sum(lines.values()))}
        hit.files = [*lines, reports.SUMMARY]


def _in_texts(search: Search, hit: Hit) -> None:
    file = open_pseudo_texts(hit.path)
    hit.removed = _counts({"texts": int(texts_of_parents(file, search.drop.keys).sum())})
    for name in PARENTS:
        hit.keys |= search.drop.keys.intersection(file.column_of_texts(name).to_pylist())


def _in_ranks(search: Search, hit: Hit) -> None:
    query_N, wrong_N = rank_files.rows_about(hit.path, search.drop.keys)
    answers = int(np.count_nonzero(wrong_N & ~query_N))
    hit.removed = _counts({"queries": int(query_N.sum()), "answers": answers})
    hit.keys = rank_files.named_in(hit.path) & search.drop.keys


def _in_trimmed(search: Search, hit: Hit) -> None:
    table = read_known(hit.path).table
    rows = table.filter(pa.array(is_among(table["key"], search.drop.keys)))
    hit.keys = set(rows["key"].to_pylist())
    # Version 0.3.0 did not record the split.
    hit.removed = dict(Counter(one or "train" for one in rows[SPLIT].to_pylist()))


def _in_cache(search: Search, hit: Hit) -> None:
    hit.keys = samples_of(hit.path) & search.drop.keys
    hit.removed = _counts({"pairs": len(hit.keys)})


def _in_export(search: Search, hit: Hit) -> None:
    """The pairs of the exported tasks, and whether one was rewritten since."""
    made = manifest_as(hit.path, "export", ExportManifest)
    found: Counter[str] = Counter()
    for content in made.inputs if made.run is None else ():
        now, removed = search.tasks.get(content, (content, {}))
        found.update(removed)
        found[_EARLIER] += now != content
    hit.removed = _counts(found)


def _counts(found: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in found.items() if count}


def _write_task(path: Path, to: Path, tars: Tars, drop: Drop) -> None:
    TaskRewriter(open_task(path), to, path, tars, drop).rewrite()


def _write_targets(path: Path, to: Path, _tars: Tars, drop: Drop) -> None:
    targets = teacher_targets.open_targets(path)
    for name in (*targets.manifest["digests"], MANIFESTS["targets"]):
        (to / name).unlink()
    teacher_targets.write_without(targets, to, drop.keys)


def _write_embeddings(path: Path, to: Path, _tars: Tars, drop: Drop) -> None:
    for part, drop_N in embedding_files.rows_of(path, drop.keys).items():
        for name in embedding_files.part_files(part):
            (to / name).unlink()
        embedding_files.write_part_without(path, to, part, drop_N)
    manifest = read_manifest(path, "embeddings")
    (to / MANIFESTS["embeddings"]).unlink()
    digests = digests_of(to, manifest["digests"])
    content = content_id({"identity": manifest["identity"], "digests": digests})
    rewrite_manifest(to, "embeddings", rewritten(manifest, content, {"digests": digests}))


class Kind(NamedTuple):
    """What is done with a kind of artifact.

    `look` finds the pairs in it. `write` writes it again without them, to a path that takes its
    place; a directory has a hard link to each of the old files there. It is deleted if there is no
    `write`, or if it `is_derived` and all that it was made from is there.
    """

    look: Callable[[Search, Hit], None]
    write: Callable[[Path, Path, Tars, Drop], None] | None = None
    is_derived: bool = False


KINDS: Final = {
    "task": Kind(_in_task, _write_task),
    "stream": Kind(_in_stream, rewrite_stream),
    "targets": Kind(_in_targets, _write_targets, is_derived=True),
    "embeddings": Kind(_in_embeddings, _write_embeddings, is_derived=True),
    # The page of a week cannot be made again.
    "report": Kind(_in_report, lambda path, to, _, drop: reports.rewrite(path, to, drop.keys)),
    RANKS: Kind(_in_ranks, lambda path, to, _, drop: rank_files.write_without(path, to, drop.keys)),
    TRIMMED: Kind(
        _in_trimmed, lambda path, to, _, drop: read_known(path).without(drop.keys).write(to)
    ),
    TEXTS: Kind(_in_texts),  # of no use without the checkpoint that makes them
    CACHED: Kind(_in_cache),
    "export": Kind(_in_export),
}
