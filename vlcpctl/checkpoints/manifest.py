"""The manifest of a checkpoint: what it was trained on, how, and what it was made from.

Torch-free, so that plans and --dry-run can read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Self

from vlcpctl.core.digests import FileDigest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.hashing import content_id
from vlcpctl.core.limits import MOST_TASKS
from vlcpctl.core.manifest import MANIFESTS, read_manifest
from vlcpctl.core.recorded_files import RESTORE
from vlcpctl.core.seals import SEAL, broken_seal, write_sealed_manifest
from vlcpctl.core.versions import DATA_WAS, Versions

_KIND = "checkpoint"
_HEAD = ("content", "identity", "files", "digests", "made_by", "more")  # not in the body
_NOT_IN_ALL = (
    *("alpha", "parent", "parents", "configs", "start", "start_config", "origin"),
    *("model", "asked", "inverting_seconds", "peak_memory", "warnings", "data_was"),
    *("files", "digests", "made_by"),
)
# The four facts of `task_history` stand together in a trained checkpoint, and apart in one that was
# imported or averaged. Readers do not care; the bytes of a manifest stay what they were.
_TRAINED = ("stream", "stream_step", "step", "task_steps", "tasks", "task_names")
_NOT_TRAINED = ("stream", "step", "tasks", "task_names", "task_steps", "stream_step")


@dataclass(frozen=True, kw_only=True)
class CheckpointManifest:
    """The facts in checkpoint.json; the defaults are those of a model before any task.

    `content`, `files`, `digests` and `made_by` are empty until the manifest is written and read
    again. `files` decide the content id; `digests` detect changes of any file, and are faster
    to verify.
    """

    content: str = ""
    identity: Mapping[str, Any]  # what a rerun of the command compares
    run: str
    method: str
    alpha: float | None = None  # the share of the second checkpoint; only of averages
    seed: int = 0
    buffer: Mapping[str, Any] | None = None  # the policy and size of the replay buffer
    stream: str | None = None  # the content id of the stream of the last tasks
    stream_step: int | None = None  # the last task's step in that stream
    step: int | None = None  # the last task's step in the run; None: not trained on a stream
    task_steps: Sequence[int | None] = ()  # the step of each task; None: learned before the run
    tasks: Sequence[str] = ()  # the content ids of the tasks it was trained on, in order
    task_names: Sequence[str] = ()
    pairs: int = 0  # seen in the last train-step, those of repeated epochs included
    train_seconds: float = 0.0
    parent: str | None = None  # the content id of --previous
    parents: Sequence[str] | None = None  # the content ids of both checkpoints; only of averages
    configs: Sequence[str | None] | None = None  # the config ids of both; only of averages
    start: str | None = None  # the content id of the checkpoint that the run started from
    start_config: str | None = None  # its config id; None if it was imported
    fresh_state: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)  # of each setting: "flag", "preset"...
    origin: Mapping[str, Any] | None = None  # the imported file; only of imported checkpoints
    model: Mapping[str, Any] | None = None  # what the model is, see `model_facts`
    asked: Mapping[str, Any] | None = None  # settings as asked for, where the data changed them
    inverting_seconds: float | None = None  # only of runs that generated pseudo texts
    peak_memory: Mapping[str, Any] | None = None  # bytes, see `core.peak_memory`
    warnings: Sequence[str] | None = None  # about what the run continued from, if there were any
    data_was: Mapping[str, Any] | None = None  # earlier ids of tasks that were rewritten before
    files: Mapping[str, str] = field(default_factory=dict)  # sha256 by relative path
    digests: Mapping[str, Any] = field(default_factory=dict)  # size and xxh3_128, likewise
    made_by: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)  # what other versions wrote besides

    @classmethod
    def read(cls, checkpoint: Path) -> Self:
        """The manifest of the checkpoint at a path.

        Raises BadInput if the path is not a checkpoint, or its manifest lacks a field, has one of a
        wrong type or out of bounds, or has changed since it was written.
        """
        entries, place = read_manifest(checkpoint, _KIND), checkpoint / MANIFESTS[_KIND]
        types = {one.name: str(one.type) for one in fields(cls) if one.name != "more"}
        wanted = [name for name in types if name in entries or name not in _NOT_IN_ALL]
        take = Fields({name: entries[name] for name in wanted}, place)  # refuses a missing one
        known = {name: _typed(take, name, types[name]) for name in wanted}
        others = entries.keys() - types.keys() - {"schema", SEAL}
        found = cls(**known, more={name: entries[name] for name in entries if name in others})
        _check_bounds(found, place)
        _check_unchanged(entries, place)
        return found

    @property
    def versions(self) -> Versions:
        """What is known about rewritten tasks among those that it was trained on."""
        return Versions.of([{DATA_WAS: self.data_was}])

    def body(self) -> dict[str, Any]:
        """The entries of the JSON object between the identity and the files, in their order."""
        is_trained = self.alpha is None and self.origin is None
        order = iter(_TRAINED if is_trained else _NOT_TRAINED)
        names = [one.name for one in fields(self) if one.name not in _HEAD]
        names = [next(order) if name in _TRAINED else name for name in names]
        left_out = {name for name in _NOT_IN_ALL if getattr(self, name) is None} - {"parent"}
        if self.parents is not None:
            left_out.add("parent")
        return {name: getattr(self, name) for name in names if name not in left_out}

    def write(
        self, directory: Path, files: Mapping[str, str], digests: Mapping[str, FileDigest]
    ) -> None:
        """Write the manifest that makes a directory a checkpoint.

        `files` are the sha256 of its files by relative path: with the identity, they decide the
        content id. `digests` are size and xxh3_128 of all its files.
        """
        content = content_id({"files": files, "identity": self.identity})
        body = {**self.body(), "files": files, "digests": digests}
        write_sealed_manifest(directory, _KIND, dict(self.identity), content, body)


_TYPES: dict[str, type | UnionType] = {
    "str": str,
    "bool": bool,
    "int": int,
    "float": int | float,
    "Mapping[str, Any]": dict,
    "Mapping[str, str]": dict,
}


def _typed(take: Fields, name: str, annotation: str) -> Any:
    """The value of a field, checked against the annotation of its attribute."""
    plain = annotation.removesuffix(" | None")
    default = (None,) if plain != annotation else ()
    if plain.startswith("Sequence["):
        found = take(name, list, *default)
        element = plain.removeprefix("Sequence[").removesuffix("]")
        for value in found or ():
            _typed(Fields({name: value}, f"{take.place}, an entry"), name, element)
        return found
    found = take(name, _TYPES[plain], *default)
    if plain == "Mapping[str, str]":
        for key, value in found.items():
            Fields({key: value}, f"{take.place}, field {name!r}")(key, str)
    return found


def _check_bounds(found: CheckpointManifest, place: Path) -> None:
    """Refuse impossible numbers: readers compute with them, or allocate a column for each step."""
    steps = [found.step, found.stream_step, *found.task_steps]
    wrong = {
        f"it has a step that is not between 0 and {MOST_TASKS - 1}": any(
            step is not None and not 0 <= step < MOST_TASKS for step in steps
        ),
        "it does not have one name and one step for each task": not (
            len(found.tasks) == len(found.task_names) == len(found.task_steps)
        ),
        "its pairs or seconds are negative": found.pairs < 0
        or not 0 <= found.train_seconds < math.inf,
    }
    for problem, holds in wrong.items():
        if holds:
            raise BadInput(f"{place} has changed since it was written: {problem}{RESTORE}")


def _check_unchanged(entries: Mapping[str, Any], place: Path) -> None:
    """Refuse a manifest whose seal or content id is not that of its fields."""
    broken = broken_seal(place, entries)
    if broken is not None:
        raise BadInput(broken + RESTORE)
    files, identity = entries.get("files"), entries["identity"]
    if files is not None and entries["content"] != content_id(
        {"files": files, "identity": identity}
    ):
        raise BadInput(f"{place} has changed since it was written: its content id differs{RESTORE}")
