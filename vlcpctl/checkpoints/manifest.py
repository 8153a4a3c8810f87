"""The manifest of a checkpoint: what it was trained on, how, and what it was made from.

Torch-free, so that plans and --dry-run can read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from vlcpctl.core.hashing import content_id
from vlcpctl.core.manifest import read_manifest, write_manifest

_KIND = "checkpoint"
_HEAD = ("content", "identity", "files", "made_by", "more")  # not in the body
_NOT_IN_ALL = ("alpha", "parent", "parents", "origin", "inverting_seconds", "files", "made_by")
# The four facts of `task_history` stand together in a trained checkpoint, and apart in one that was
# imported or averaged. Readers do not care; the bytes of a manifest stay what they were.
_TRAINED = ("stream", "stream_step", "step", "task_steps", "tasks", "task_names")
_NOT_TRAINED = ("stream", "step", "tasks", "task_names", "task_steps", "stream_step")


@dataclass(frozen=True, kw_only=True)
class CheckpointManifest:
    """The facts in checkpoint.json; the defaults are those of a model before any task.

    `content`, `files` and `made_by` are empty until the manifest is written and read again.
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
    fresh_state: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)  # of each setting: "flag", "preset"...
    origin: Mapping[str, Any] | None = None  # the imported file; only of imported checkpoints
    inverting_seconds: float | None = None  # only of runs that generated pseudo texts
    files: Mapping[str, str] = field(default_factory=dict)  # sha256 by relative path
    made_by: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)  # what other versions wrote besides

    @classmethod
    def read(cls, checkpoint: Path) -> Self:
        """The manifest of the checkpoint at a path.

        Raises BadInput if the path is not a checkpoint, or its manifest lacks a field.
        """
        entries = read_manifest(checkpoint, _KIND)
        names = [one.name for one in fields(cls) if one.name != "more"]
        wanted = [name for name in names if name in entries or name not in _NOT_IN_ALL]
        known = {name: entries[name] for name in wanted}  # names the file if one is missing
        more = {name: value for name, value in entries.items() if name not in {*names, "schema"}}
        return cls(**known, more=more)

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

    def write(self, directory: Path, files: Mapping[str, str]) -> None:
        """Write the manifest that makes a directory a checkpoint.

        `files` are the sha256 of its files by relative path: with the identity, they decide the
        content id.
        """
        content = content_id({"files": files, "identity": self.identity})
        body = {**self.body(), "files": files}
        write_manifest(directory, _KIND, dict(self.identity), content, body)
