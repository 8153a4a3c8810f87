"""Everything that is stored under some paths, and what it was made of."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.checkpoints.step_config import BATCH_NORM_FROM
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.splitting.leaving_out import KNOWN_METADATA, read_known
from vlcpctl.deletion.tars import Inode
from vlcpctl.evaluation import rank_files
from vlcpctl.files.inputs import read_json_object
from vlcpctl.files.manifest import birth_id, is_artifact, kind_of, read_manifest
from vlcpctl.files.outputs import Output, output_at
from vlcpctl.files.stores import is_cache

RANKS, TRIMMED = "ranks", "trimmed week"
UNFINISHED = "unfinished work"  # the state of a run, or parts
_FORMATS = {rank_files.METADATA: RANKS, KNOWN_METADATA: TRIMMED}
_FORMATS_0_3 = (b"vlcpctl.pseudo-texts", b"vlcpctl.embedding-cache")
_VECTORS = ("targets", "embeddings", "pseudo-texts", "cached-embeddings")
_WHOLE = ("stream", "task", "checkpoint", *_VECTORS, "export")
_OURS = re.compile(rb'"schema": ?"vlcpctl\.')
_STATE = re.compile(rb'"schema": ?"vlcpctl\.state/')
_START_BYTES = 4096
_OF_STATE = frozenset({"events.ndjson", "update.toml"})

# The fields of identities that have content ids.
_DATA = ("tasks", "buffer", "reference", "targets", "pseudo_texts", "distractors", BATCH_NORM_FROM)
_MODELS = ("previous", "teacher", "checkpoint", "base")


@dataclass(eq=False)
class Artifact:
    """A directory or file that vlcpctl made, and what a search finds in it.

    `unit` is the output that it is a part of, which is rewritten or deleted as one. In a hidden
    directory (`is_hidden`), where --force keeps what it replaced, that is deleted.
    """

    path: Path
    kind: str
    unit: Path
    is_hidden: bool = False
    removed: dict[str, int] = field(default_factory=dict)  # by split, or by what they are
    keys: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)  # that contain the pairs; relative paths
    foreign: Counter[str] = field(default_factory=Counter)  # pairs that stay, by tar of others
    again: str | None = None  # how it is made again, if it is deleted for that

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """Its manifest, or what a file has in its place. Raises BadInput if it cannot be read."""
        if self.kind == RANKS:
            return {}
        if self.kind == TRIMMED:
            return {"content": read_known(self.path).content}
        if self.kind == UNFINISHED:
            found = read_json_object(self.path / "identity.json")
            return {"identity": found.get("semantic", found)}
        return read_manifest(self.path, self.kind)

    @property
    def ids(self) -> list[str]:
        """The content id that it was made with, and its content id now; [] if it has none."""
        made = self.manifest
        return [birth_id(made, self.path), str(made["content"])] if "content" in made else []

    @property
    def content(self) -> str | None:
        """Its content id now, if it has one."""
        return next(reversed(self.ids), None)

    @property
    def is_model(self) -> bool:
        """Whether it is a checkpoint, or an exported one."""
        return self.kind == "checkpoint" or bool(self.kind == "export" and self.manifest.get("run"))

    @property
    def data(self) -> set[str]:
        """The ids of the data that it was made of."""
        made = self.manifest
        if self.kind == "export":
            return set(made["tasks"] if self.is_model else made["inputs"])
        born = made.get("ids") or {}  # of a checkpoint
        found = _ids_in(made["identity"], _DATA)
        return {*(made.get("tasks", ()) if self.is_model else ()), *(born.get(x, x) for x in found)}

    @property
    def models(self) -> set[str]:
        """The ids of the models that it was made of."""
        if self.kind == "export":
            return set(self.manifest["inputs"] if self.is_model else ())
        parents = _ids_in(self.manifest, ("parent", "start", "parents"))  # of a checkpoint
        return parents | _ids_in(self.manifest["identity"], _MODELS)

    def named(self) -> dict[str, Any]:
        """It as a receipt names it."""
        return {"path": str(self.path), "kind": self.kind, "content": self.content}

    def entry(self) -> dict[str, Any]:
        """What a receipt has of the pairs in it."""
        is_buffer = self.kind == "task" and bool(self.manifest.get("buffer"))
        return {
            "path": str(self.path),
            "kind": "buffer" if is_buffer else self.kind,
            "action": "deleted" if self.is_hidden or self.again is not None else "rewritten",
            "removed": self.removed,
            "before": {"content": self.content},
            "again": self.again or None,
        }


@dataclass
class Places:
    """What a walk has found, and what of it contains pairs."""

    stored: list[Artifact] = field(default_factory=list)
    hidden: list[Output] = field(default_factory=list)
    links: dict[Inode, set[Path]] = field(default_factory=dict)  # files with hard links
    skipped: list[Path] = field(default_factory=list)  # symbolic links to what is not searched
    others: list[Path] = field(default_factory=list)  # files that vlcpctl did not write
    states: set[Path] = field(default_factory=set)  # state directories of `vlcpctl update`
    caches: set[Path] = field(default_factory=set)  # of object stores, also those of the states
    hits: list[Artifact] = field(default_factory=list)

    def units(self) -> list[Artifact]:
        """The outputs to rewrite or delete, those that are inside of others first."""
        found = [one for one in self.hits if one.path == one.unit and not one.is_hidden]
        return sorted(found, key=lambda one: (-len(one.path.parts), one.path))

    def visit(self, path: Path, owner: Artifact | None = None, kept: Path | None = None) -> None:
        """Record a path and everything below it; `owner` is the artifact that it is inside of."""
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            self.skipped.append(path)
        elif stat.S_ISREG(mode):
            self._note_link(path)
            if owner is None or owner.kind != "export":  # which may have a million images
                self._visit_file(path, owner, kept)
        elif (staging := output_at(path)) is not None:
            self._visit_hidden(staging)
        elif is_cache(path):
            self.caches.add(path)
        elif stat.S_ISDIR(mode):
            self._visit_directory(path, owner, kept)

    def _visit_file(self, path: Path, owner: Artifact | None, kept: Path | None) -> None:
        kind, is_ours = _kind_of_file(path)
        if kind is not None:
            self.stored.append(Artifact(path, kind, kept or path, kept is not None))
        elif owner is None and not is_ours:
            self.others.append(path)

    def _note_link(self, path: Path) -> None:
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_nlink > 1:
            self.links.setdefault((about.st_dev, about.st_ino), set()).add(path)

    def _visit_directory(self, path: Path, owner: Artifact | None, kept: Path | None) -> None:
        if _is_state(path):
            self.states.add(path)
        if (kind := kind_of(path)) is not None and is_artifact(path):
            unit = path
            if owner is not None and owner.kind == "stream" and owner.path == path.parent:
                listed = {entry["path"] for entry in owner.manifest["tasks"]}
                unit = owner.unit if path.name in listed else path
            owner = Artifact(path, kind, kept or unit, kept is not None)
            self.stored.append(owner)
        for child in sorted(path.iterdir()):
            self.visit(child, owner, kept)

    def _visit_hidden(self, staging: Output) -> None:
        self.hidden.append(staging)
        for path in staging.hidden.rglob("*"):  # what dead writers left has hard links
            self._note_link(path)
        replaced = staging.replaced.parent
        for path in (staging.partial, *(sorted(replaced.iterdir()) if replaced.is_dir() else ())):
            if (path / "identity.json").is_file():
                self.stored.append(Artifact(path, UNFINISHED, path, is_hidden=True))
            elif path != staging.partial:
                self.visit(path, kept=path)


def places_under(tops: Iterable[Path]) -> Places:
    """Everything under these paths, and in the hidden directory beside each of them.

    Raises OSError if a directory cannot be read: the search would not be complete.
    """
    found, searched = Places(), set(tops)
    for top in sorted(searched):
        found.states.update(filter(_is_state, top.parents))
        for path in (top, Output(top).hidden):
            if os.path.lexists(path) and (path == top or output_at(path)):
                found.visit(path)
    for state in found.states:
        attempts = read_json_object(state / "state.json")["attempts"]
        for recorded in {one["settings"]["update"].get("cache") for one in attempts}:
            if recorded is not None and is_cache(Path(recorded)):
                found.caches.add(Path(recorded))
    # Not those that lead to something that is searched anyway.
    found.skipped = [
        link
        for link in found.skipped
        if not link.exists() or searched.isdisjoint({link.resolve(), *link.resolve().parents})
    ]
    return found


def tops_of(paths: Sequence[Path]) -> list[Path]:
    """The paths to search: absolute, whole artifacts instead of parts of them, and each once.

    Raises UsageError for the root of the file system.
    """
    found = {whole(path) for path in paths}
    if Path(os.sep) in found:
        raise UsageError(f"{os.sep} is the whole file system; give the directories to search")
    return sorted(top for top in found if not found & set(top.parents))


def whole(path: Path) -> Path:
    """The absolute path of the artifact that a path is a part of, else of the path itself."""
    real = Path(os.path.realpath(path))
    hidden = (output_at(at) for at in (real, *real.parents))
    place = next((one.place for one in hidden if one is not None), real)
    return around(place) or place


def around(path: Path) -> Path | None:
    """The outermost artifact whose directory contains a path, or None."""
    parents = (at for at in reversed(path.parents) if kind_of(at) in _WHOLE)
    return next(filter(is_artifact, parents), None)


def _ids_in(values: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for value in map(values.get, names):
        found.update(one for one in (value if isinstance(value, list) else [value]) if one)
    return found


def _is_state(directory: Path) -> bool:
    """Whether a directory is the state of a model in production, not of a training run.

    Raises BadInput if its state.json is damaged, or of version 0.3: what continues from that would
    not know which pairs were deleted.
    """
    path = directory / "state.json"
    if not path.is_file() or _STATE.search(_start_of(path)) is None:
        return False
    found = read_json_object(path)
    if "weeks" in found:
        raise BadInput(
            f"{directory} is a state of version 0.3, in which no deletion can be recorded: start "
            f"another one from it, as 'vlcpctl inspect {directory}' says, and delete it"
        )
    return "attempts" in found


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_START_BYTES)


def _kind_of_file(path: Path) -> tuple[str | None, bool]:
    """The kind of a Parquet file of ours, and whether vlcpctl wrote a file.

    Raises BadInput for one of version 0.3 that is not searched any more.
    """
    if path.name in _OF_STATE and (path.parent / "state.json").is_file():
        return None, True
    if (start := _start_of(path)).startswith(b"PAR1"):
        try:
            metadata = pq.read_metadata(path).metadata or {}
        except (OSError, ValueError, pa.ArrowException):
            return None, False
        _refuse_0_3(path, b" ".join(metadata))
        kind = next((kind for name, kind in _FORMATS.items() if name in metadata), None)
        return kind, kind is not None
    if path.suffix == ".safetensors":
        _refuse_0_3(path, start)
    return None, not start or _OURS.search(start) is not None


def _refuse_0_3(path: Path, found: bytes) -> None:
    if any(name in found for name in _FORMATS_0_3):
        raise BadInput(f"{path} has embeddings of pairs as version 0.3 stored them; delete it")
