"""Find pairs in each kind of artifact, and remove them.

What can be made again from what still exists is deleted; rows are left out of the rest.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, OutputExists
from vlcpctl.core.words import Shown
from vlcpctl.data.classification.labelled_images import TEMPLATES
from vlcpctl.data.precomputed import targets
from vlcpctl.data.precomputed.pseudo_texts import PARENTS, open_pseudo_texts
from vlcpctl.data.precomputed.store import Store
from vlcpctl.data.splitting.leaving_out import KNOWN_SPLIT, read_known
from vlcpctl.data.tasks.facts import CARD
from vlcpctl.data.tasks.index import rows_path
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion import tasks
from vlcpctl.deletion.places import RANKS, TRIMMED, UNFINISHED, Artifact, Places
from vlcpctl.deletion.reports import lines_about, rewrite_report
from vlcpctl.deletion.tars import Tars, inode_of
from vlcpctl.deletion.tasks import Drop, hits_of, is_among
from vlcpctl.evaluation import rank_files, samples
from vlcpctl.evaluation.embedding_cache import samples_of
from vlcpctl.files.digests import RESTORE, digests_of, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import MANIFESTS, read_manifest, rewrite_manifest, rewritten
from vlcpctl.files.outputs import Output, link_or_copy, output_at, rewriting, sync
from vlcpctl.files.outputs import remove as remove_tree
from vlcpctl.files.stores import empty_cache

_LAST = ("export", UNFINISHED)  # found by what they were made of
_DERIVED = ("targets", "embeddings")  # deleted if that is there, else written again


def find_pairs(stored: Sequence[Artifact], drop: Drop, tars: Tars) -> list[Artifact]:
    """The artifacts and files with some of the pairs, with what was found in each.

    Raises BadInput if one is damaged.
    """
    whole = [one for one in stored if one.kind in {"task", "checkpoint"} and not one.is_hidden]
    there = {content for one in whole for content in one.ids}
    # Only their test pairs are there.
    there -= {content for one in stored if one.kind == TRIMMED for content in one.ids}
    hits: list[Artifact] = []
    in_unit: Counter[Path] = Counter()  # tasks with some of the pairs, by stream
    changed: set[str] = set()  # ids of data without some pairs, also since an earlier deletion
    for one in sorted(stored, key=lambda one: (one.kind in _LAST, one.kind != "task")):
        if one.kind in _LOOK:
            _LOOK[one.kind](one, drop, tars)
        elif one.kind in _KEYS:
            one.keys = _KEYS[one.kind](one.path) & drop.keys
            one.removed["pairs"] = len(one.keys)
        elif one.kind in _LAST and not one.is_model:
            one.removed["inputs"] = len(one.data & changed)
        one.removed["tasks"] = in_unit[one.path]
        one.removed = {name: count for name, count in one.removed.items() if count}
        changed.update(one.ids if one.removed else {*one.ids} - {*one.ids[-1:]})
        if one.removed:
            one.files = one.files or _written_files(one)
            if one.kind not in _WRITE or (one.kind in _DERIVED and one.data | one.models <= there):
                one.again = _line(one)
            elif one.kind in _DERIVED:  # it would get new digests
                verify_files(one.path, one.manifest["digests"], advice=RESTORE)
            in_unit[one.unit] += one.unit != one.path
            hits.append(one)
    return hits


def _written_files(one: Artifact) -> list[str]:
    """The relative paths of the files of an artifact, or "" for a file.

    Without those that its maker did not write, or that people edit and did.
    """
    if one.kind not in MANIFESTS:
        return [""] if one.path.is_file() else []
    recorded = {**one.manifest.get("digests", {}), CARD: one.manifest.get("card")}
    own = {*recorded, MANIFESTS[one.kind].partition("/")[0]}
    for name in (CARD, TEMPLATES):
        if (one.path / name).is_file() and digests_of(one.path, [name])[name] != recorded.get(name):
            own.discard(name)
    return [name for name in _all_files(one.path) if own & {name, name.partition("/")[0]}]


def _line(one: Artifact) -> str:
    """The command line that made an artifact; "" if what needs it makes it again."""
    if one.kind == "cached-embeddings":
        return ""
    words = dict(one.manifest.get("made_by") or {}).get("argv") or []
    # Rows that the same line has written are of the data as it was.
    force = ["--force"] if one.kind == "embeddings" else []
    return shlex.join(["vlcpctl", *words[1:2], *force, *words[2:]]) if words else ""


def _all_files(directory: Path) -> list[str]:
    """The relative paths of all files and symbolic links below a directory."""
    found = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(directory).as_posix() for path in found)


def _in_task(one: Artifact, drop: Drop, tars: Tars) -> None:
    task = open_task(one.path)
    for split in map(task.split, task.manifest.splits):
        drop_N, shards = hits_of(task, split, tars, drop)
        one.removed[split.name] = int(drop_N.sum())
        evicted = sum(map(len, shards.values())) - int(drop_N.sum())
        one.removed["evicted"] = one.removed.get("evicted", 0) + evicted
        one.keys.update(*shards.values())
        one.files += [split.path.name, rows_path(split.path).name] if shards else []
        if not task.manifest.in_place:
            one.files += shards
        else:
            counts = {os.path.realpath(task.path / shard): len(shards[shard]) for shard in shards}
            one.foreign.update(counts)
    if task.manifest.buffer and task.manifest.buffer.features:
        one.files += tasks.FEATURES


def _in_stream(one: Artifact, drop: Drop, _: Tars) -> None:
    one.removed["skipped"] = tasks.skipped_lines(one.path, drop)
    one.files = [tasks.SKIPPED] if one.removed["skipped"] else []


def _in_report(one: Artifact, drop: Drop, _: Tars) -> None:
    lines = lines_about(one.path, drop.keys)
    one.keys = {key for found in lines.values() for keys in found for key in keys}
    one.removed["examples"] = sum(map(len, lines.values()))
    one.files = list(lines)


def _in_trimmed(one: Artifact, drop: Drop, _: Tars) -> None:
    table = read_known(one.path).table
    rows = table.filter(pa.array(is_among(table["key"], drop.keys)))
    one.keys = set(rows["key"].to_pylist())
    # Version 0.3.0 did not record the split.
    one.removed = dict(Counter(one or "train" for one in rows[KNOWN_SPLIT].to_pylist()))


def _stores_in(path: Path, kind: str) -> list[Store]:
    """The vectors of targets or saved embeddings."""
    if kind == "targets":
        return [targets.open_targets(path).store]
    return samples.stores_in(path)


def _keys_of(kind: str) -> Callable[[Path], set[str]]:
    return lambda path: {key for store in _stores_in(path, kind) for key in store.samples()}


def _keys_of_texts(path: Path) -> set[str]:
    texts = open_pseudo_texts(path)
    return {key for name in PARENTS for key in texts.column(name).tolist()}


def _write_task(path: Path, to: Path, tars: Tars, drop: Drop) -> None:
    tasks.TaskRewriter(open_task(path), to, path, tars, drop).rewrite()


def _write_vectors(kind: str) -> Callable[[Path, Path, Tars, Drop], None]:
    def write(path: Path, to: Path, _: Tars, drop: Drop) -> None:
        manifest = read_manifest(path, kind)
        for name in (*manifest["digests"], MANIFESTS[kind]):
            (to / name).unlink()
        left = [store.write_without(to, drop.keys) for store in _stores_in(path, kind)]
        digests = digests_of(to, manifest["digests"])
        content = content_id({"identity": manifest["identity"], "digests": digests})
        changes: dict[str, Any] = {"digests": digests}
        if kind == "targets":
            changes["pairs"] = sum(len(store.samples()) for store in left)
        rewrite_manifest(to, kind, rewritten(manifest, content, changes))

    return write


# What finds the pairs in an artifact, or all keys that it has.
_LOOK: Final[dict[str, Callable[[Artifact, Drop, Tars], None]]] = {
    "task": _in_task,
    "stream": _in_stream,
    "report": _in_report,
    TRIMMED: _in_trimmed,
}
_KEYS: Final[dict[str, Callable[[Path], set[str]]]] = {
    **{kind: _keys_of(kind) for kind in _DERIVED},
    "pseudo-texts": _keys_of_texts,
    RANKS: rank_files.named_in,
    "cached-embeddings": lambda path: {*samples_of(path)},
}

# What writes an artifact again without the pairs, to a path that takes its place; a directory has a
# hard link to each of the old files there. All others are deleted: pseudo texts are of no use
# without the checkpoint that makes them.
_WRITE: Final[dict[str, Callable[[Path, Path, Tars, Drop], None]]] = {
    "task": _write_task,
    "stream": tasks.rewrite_stream,
    **{kind: _write_vectors(kind) for kind in _DERIVED},
    "report": lambda path, to, _, drop: rewrite_report(path, to, drop.keys),
    RANKS: lambda path, to, _, drop: rank_files.write_without(path, to, drop.keys),
    TRIMMED: lambda path, to, _, drop: read_known(path).without(drop.keys).write(to),
}


def refuse_reachable(places: Places, shown: Shown) -> None:
    """Refuse pairs that would stay in an unfinished run, or under other names of a file."""
    for one in (one for one in places.hits if one.kind == UNFINISHED):
        if "run" in one.manifest["identity"] and one.path.parent.name != "replaced":
            raise OutputExists(
                f"{shown(one.path)} is an unfinished run on data that contains the pairs; finish "
                "it or remove it"
            )
    hidden = [one.hidden for one in places.hidden]  # with what killed writers have left
    files = {one.path / name for one in places.hits for name in one.files}
    for path in sorted(files):
        if path.is_symlink():
            raise BadInput(
                f"{shown(path)} is a symbolic link to {shown(os.path.realpath(path))}, whose bytes "
                "would stay; put the file itself in its place"
            )
        count, found = path.stat().st_nlink, places.links.get(inode_of(path), {path})
        others = [one for one in found - files if not any(map(one.is_relative_to, hidden))]
        if others or count > len(found):
            where = shown(others[0]) if others else "not under the given paths"
            raise BadInput(
                f"{shown(path)} has {count} hard links, one of them {where}; give the directories "
                "of their artifacts, too, or remove them"
            )


def remove(places: Places, drop: Drop, shown: Shown) -> None:
    """Remove the pairs everywhere; for the holder of the locks of all these outputs."""
    for path in sorted({one.unit for one in places.hits if one.is_hidden}):
        staging = next(filter(None, map(output_at, path.parents)))
        with staging.locked():  # the hidden directory goes, too, if nothing else is in it
            path.rename(staging.writing)  # which the next writer deletes, if this one is killed
            remove_tree(staging.writing)
        say(f"deleted {shown(path)}")
    tars = Tars()
    for one in places.units():
        if one.again is None:
            _rewrite(one, tars, drop)
            say(f"rewrote {shown(one.path)}")
        else:
            added = _delete(one)
            again = f"; '{one.again}' makes it again" if one.again else ""
            left = f"; left files that were added or changed: {', '.join(added)}" if added else ""
            say(f"deleted {shown(one.path)}{again}{left}")


def _delete(one: Artifact) -> list[str]:
    """Delete an artifact but for files that somebody added; returns these."""
    added = sorted({*_all_files(one.path)}.difference(one.files))
    if not added:
        output = Output(one.path)
        output.place.rename(output.writing)  # killed from here on, the next writer deletes it
        sync(output.place.parent)
        remove_tree(output.writing)
        return []
    with rewriting(one.path) as target:
        target.mkdir()
        for name in added:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(one.path / name, target / name)
    return added


def _rewrite(one: Artifact, tars: Tars, drop: Drop) -> None:
    path, write = one.path, _WRITE[one.kind]
    if path.is_dir():
        with rewriting(path) as target:
            target.mkdir()
            tasks.mirror(path, target)
            write(path, target, tars, drop)
        return
    with rewriting(path) as temporary:
        write(path, temporary, tars, drop)


def empty_caches(caches: Iterable[Path], shown: Shown) -> None:
    """Empty caches of object stores: their files may have the pairs, and are fetched again."""
    for cache in sorted(caches):
        empty_cache(cache)
        say(f"emptied the cache {shown(cache)}")
