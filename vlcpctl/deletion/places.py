"""Everything that is stored under some paths: artifacts, files, hidden directories, hard links."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput, UsageError, missing
from vlcpctl.data.precomputed import pseudo_texts
from vlcpctl.data.splitting.known_keys import FILES_0_3, METADATA, is_known_keys
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.data.tasks.rows import ENDING as ROWS_ENDING
from vlcpctl.deletion.tars import Inode
from vlcpctl.deletion.tasks import FEATURES, SKIPPED
from vlcpctl.evaluation import rank_files
from vlcpctl.evaluation.embedding_cache import is_cache_file
from vlcpctl.files.inputs import read_json_object
from vlcpctl.files.manifest import MANIFESTS, is_artifact, kind_of
from vlcpctl.files.outputs import Output, output_at
from vlcpctl.files.stores import is_cache

_WHOLE = ("stream", "task", "checkpoint", "targets", "embeddings", "export")
TEXTS, RANKS, CACHED, TRIMMED = "pseudo texts", "ranks", "cached embeddings", "trimmed week"
_FORMATS = {pseudo_texts.METADATA: TEXTS, rank_files.METADATA: RANKS, METADATA: TRIMMED}
_OURS = re.compile(rb'"schema": ?"vlcpctl\.')
_STATE = re.compile(rb'"schema": ?"vlcpctl\.state/')
_LEFT = re.compile("writing-|ready$")
_START_BYTES = 4096


@dataclass(frozen=True)
class Stored:
    """A directory or file that vlcpctl made; `unit` is the output that it is a part of.

    `kept` is what is deleted as a whole if it has to be: an output that --force replaced. `own` are
    the names of the files of a stream or task; other artifacts list their own.
    """

    path: Path
    kind: str
    unit: Path
    kept: Path | None = None
    own: frozenset[str] | None = field(default=None, compare=False)


@dataclass
class Places:
    """What a walk has found."""

    stored: list[Stored] = field(default_factory=list)
    hidden: list[Output] = field(default_factory=list)
    unfinished: list[Path] = field(default_factory=list)  # directories of saved states or parts
    links: dict[Inode, list[Path]] = field(default_factory=dict)  # files with hard links
    skipped: list[Path] = field(default_factory=list)  # symbolic links to what is not searched
    others: list[Path] = field(default_factory=list)  # files that vlcpctl did not write
    states: set[Path] = field(default_factory=set)  # state directories of `vlcpctl update`
    caches: set[Path] = field(default_factory=set)  # of object stores, also those of the states

    def of(self, kind: str) -> list[Path]:
        """The paths of all of a kind."""
        return [one.path for one in self.stored if one.kind == kind]

    def visit(self, path: Path, owner: Stored | None = None, kept: Path | None = None) -> None:
        """Record a path and everything below it; `owner` is the artifact that it is inside of."""
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            self.skipped.append(path)
        elif stat.S_ISREG(about.st_mode):
            self._note_link(path, about)
            if owner is None or (owner.own is not None and path.name not in owner.own):
                self._visit_file(path, kept)
        elif stat.S_ISDIR(about.st_mode):
            if (output := output_at(path)) is not None:
                self._visit_hidden(output)
            elif is_cache(path):
                self.caches.add(path)
            else:
                self._visit_directory(path, owner, kept)

    def _visit_file(self, path: Path, kept: Path | None) -> None:
        kind, is_ours = _kind_of_file(path)
        if kind is not None:
            self.stored.append(Stored(path, kind, path, kept))
        elif not is_ours:
            self.others.append(path)

    def _note_link(self, path: Path, about: os.stat_result) -> None:
        if about.st_nlink > 1:
            self.links.setdefault((about.st_dev, about.st_ino), []).append(path)

    def _visit_directory(self, path: Path, owner: Stored | None, kept: Path | None) -> None:
        if _is_state(path):
            self.states.add(path)
        kind = kind_of(path)
        if kind is not None and is_artifact(path):
            unit = path
            if kind == "task" and owner is not None and owner.kind == "stream":
                listed = {entry.path for entry in read_stream(owner.path).tasks}
                unit = owner.unit if path.name in listed else path
            owner = Stored(path, kind, unit, kept, _own_files(path, kind))
            self.stored.append(owner)
        for child in sorted(path.iterdir()):
            self.visit(child, owner, kept)

    def _visit_hidden(self, output: Output) -> None:
        self.hidden.append(output)
        for path in sorted(output.hidden.rglob("*")):  # of dead writers, too: they are hard links
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                self._note_link(path, about)
        inside, replaced = Places(), output.replaced.parent
        if output.partial.is_dir():
            self.unfinished.append(output.partial)
        for kept in sorted(replaced.iterdir()) if replaced.is_dir() else ():
            if (kept / "identity.json").is_file() and kept.name == output.partial.name:
                self.unfinished.append(kept)
            else:
                inside.visit(kept, kept=kept)
        if output.ready.exists() and not os.path.lexists(output.place):
            inside.visit(output.ready)
        self.stored += inside.stored
        self.skipped += inside.skipped
        self.others += inside.others


def places_under(tops: Iterable[Path]) -> Places:
    """Everything under these paths, and in the hidden directory beside each of them.

    Raises OSError if a directory cannot be read: the search would not be complete.
    """
    found, searched = Places(), set(tops)
    for top in sorted(searched):
        found.states.update(filter(_is_state, top.parents))
        if os.path.lexists(top):
            found.visit(top)
        if Output(top).is_ours():
            found.visit(Output(top).hidden)
    for state in found.states:
        for path in (state / "state.json", *state.rglob("week.json")):
            recorded = (read_json_object(path).get("settings") or {}).get("cache")
            if recorded is not None and is_cache(Path(recorded)):
                found.caches.add(Path(recorded))
    # Not those that lead to something that is searched anyway.
    found.skipped = [
        link
        for link in found.skipped
        if not link.exists() or searched.isdisjoint({link.resolve(), *link.resolve().parents})
    ]
    return found


def tops_of(paths: Sequence[Path], was_searched: Callable[[Path], bool]) -> list[Path]:
    """The paths to search: absolute, whole artifacts instead of parts of them, and each once.

    Raises BadInput as `whole` does, and UsageError for the root of the file system.
    """
    found = {whole(path, was_searched) for path in paths}
    for top in found:
        if top == top.parent:
            raise UsageError(
                f"{top} is the root of the file system; give the directories to search"
            )
    return sorted(top for top in found if not found & set(top.parents))


def whole(path: Path, was_searched: Callable[[Path], bool]) -> Path:
    """The absolute path of the artifact that a path is a part of, else of the path itself.

    Raises BadInput if it does not exist, unless it `was_searched`: a deletion may have deleted it.
    """
    real = Path(os.path.realpath(path))
    if not os.path.lexists(real) and not was_searched(real):
        raise BadInput(missing(path))
    for at in (real, *real.parents):
        output = output_at(at)
        if output is not None:
            return around(output.place) or output.place
    return around(real) or real


def around(path: Path) -> Path | None:
    """The outermost artifact whose directory contains a path, or None."""
    parents = (at for at in reversed(path.parents) if kind_of(at) in _WHOLE)
    return next(filter(is_artifact, parents), None)


def is_left_over(path: Path) -> bool:
    """Whether a path is what a writer leaves when it is killed, which the next one deletes."""
    return any(_LEFT.match(at.name) and output_at(at.parent) for at in path.parents)


def _is_state(directory: Path) -> bool:
    """Whether a directory is the state of a model in production, not of a training run.

    Raises BadInput if its state.json is damaged.
    """
    path = directory / "state.json"
    if not path.is_file():
        return False
    with path.open("rb") as file:
        is_ours = _STATE.search(file.read(_START_BYTES)) is not None
    return is_ours and "weeks" in read_json_object(path)


def _own_files(path: Path, kind: str) -> frozenset[str] | None:
    if kind == "stream":
        return frozenset({MANIFESTS["stream"], SKIPPED})
    if kind != "task":
        return None
    splits = read_task(path).splits
    shards = [shard for split in splits.values() for shard in split.shards]
    indexes = [f"{name}{ending}" for name in splits for ending in (".parquet", ROWS_ENDING)]
    return frozenset({MANIFESTS["task"], *indexes, *shards, *FEATURES})


def _kind_of_file(path: Path) -> tuple[str | None, bool]:
    """The kind of a Parquet file or cache file of ours, and whether vlcpctl wrote a file."""
    keys, about = (path.with_name(name) for name in FILES_0_3)
    if path in {about, keys} and keys.exists() and is_known_keys(about):
        return (TRIMMED if path == about else None), True
    with path.open("rb") as file:
        start = file.read(_START_BYTES)
    if start.startswith(b"PAR1"):
        try:
            metadata = pq.read_metadata(path).metadata or {}
        except (OSError, ValueError, pa.ArrowException):
            return None, False
        kind = next((kind for name, kind in _FORMATS.items() if name in metadata), None)
        return kind, kind is not None
    if is_cache_file(start):
        return CACHED, True
    return None, not start or _OURS.search(start) is not None
