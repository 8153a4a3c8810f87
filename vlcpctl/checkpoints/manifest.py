"""The manifest of a checkpoint: what it was trained on, how, and what it was made from.

Torch-free, so that plans and --dry-run can read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Self

from msgspec import Meta, to_builtins

from vlcpctl.core.errors import BadInput
from vlcpctl.files.digests import FileDigest
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import MOST_TASKS
from vlcpctl.files.manifest import MANIFESTS, Manifest, manifest_as, write_manifest

_KIND = "checkpoint"
_OF_THE_FILE = {one.name for one in fields(Manifest)} | {"files", "digests", "ids"}
Step = Annotated[int, Meta(ge=0, lt=MOST_TASKS)]


@dataclass(frozen=True, kw_only=True)
class CheckpointManifest(Manifest):
    """A model after a task, of `train-step`, `import-checkpoint` or `merge`.

    The defaults are those of a model before any task. `content`, `files`, `digests` and `made_by`
    are empty until the manifest is written and read again. `files` decide the content id; `digests`
    detect changes of any file, and are faster to verify.
    """

    run: str
    """Name of the run."""
    method: str
    """Method, such as `ctp+er`; `imported`, or `merge-RULE` for merged weights."""
    alpha: float | None = None
    """Averages of `interpolate`, a command before 0.4: share of the second checkpoint."""
    seed: int = 0
    """Seed of random choices."""
    buffer: Mapping[str, Any] | None = None
    """Policy and size of the replay buffer; null without one."""
    stream: str | None = None
    """Content id of the stream of the last tasks."""
    stream_step: Step | None = None
    """Position of the last task in that stream."""
    step: Step | None = None
    """Position of the last task in the run; null if not trained on a stream."""
    task_steps: Sequence[Step | None] = ()
    """Position of each task in the run; null for one learned before it."""
    tasks: Sequence[str] = ()
    """Content ids that the tasks it was trained on were made with, in order."""
    task_names: Sequence[str] = ()
    """Their names."""
    pairs: Annotated[int, Meta(ge=0)] = 0
    """Pairs seen in the last train-step, those of repeated epochs included."""
    train_seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Seconds that the last train-step trained, over all resumes."""
    parent: str | None = None
    """Content id of `--previous`; null without one."""
    parents: Sequence[str] | None = None
    """Merged weights: content ids of the checkpoints."""
    configs: Sequence[str | None] | None = None
    """Merged weights: ids of the settings of the checkpoints."""
    start: str | None = None
    """Content id of the checkpoint that the run started from; null if it was a new model."""
    start_config: str | None = None
    """Id of its settings; null if it was not trained here."""
    fresh_state: bool = False
    """Whether `--fresh-state` was given."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each setting comes from: a flag, the preset, the method, ..."""
    origin: Mapping[str, Any] | None = None
    """Imported checkpoints: name, size and digest of the file, and whether it ran code."""
    model: Mapping[str, Any] | None = None
    """Architecture, source of its first weights, family (`dual` or `fusion`), text length in
    tokens, image size in pixels, temperature and heads; names of the files of the first two."""
    asked: Mapping[str, Any] | None = None
    """Settings as they were asked for, where the data changed them."""
    inverting_seconds: float | None = None
    """Seconds spent on generating negative texts; null if it did not."""
    peak_memory: Mapping[str, int] | None = None
    """Most memory used, in bytes: of the process, and of its GPU."""
    warnings: Sequence[str] | None = None
    """Warnings about what it continued from; null if there were none."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Content ids that tasks, buffer and reference were made with, by their content id in
    `identity`, where `forget` had rewritten them before. Only if it had."""
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the files of the model and the method's state; with the identity, they decide the
    content id."""
    digests: Mapping[str, FileDigest] = field(default_factory=dict)
    """Size and digest (`xxh3_128`) of every file; quicker to verify."""

    @property
    def is_merged(self) -> bool:
        """Whether its weights were merged from those of others, not trained or imported."""
        return self.parents is not None

    @property
    def rule_values(self) -> str:
        """The hyper-parameters of the rule that merged it, such as "keep=0.2 scale=1.0"."""
        rule = self.identity.get("rule")
        values = rule.items() if isinstance(rule, Mapping) else ()
        return " ".join(f"{name}={value}" for name, value in values if value != [])

    @classmethod
    def read(cls, checkpoint: Path) -> Self:
        """The manifest of the checkpoint at a path.

        Raises BadInput if the path is not a checkpoint, or its manifest has changed since it was
        written, lacks a field, or has one of a wrong type or out of bounds.
        """
        found = manifest_as(checkpoint, _KIND, cls)
        if not len(found.tasks) == len(found.task_names) == len(found.task_steps):
            place = checkpoint / MANIFESTS[_KIND]
            raise BadInput(f"{place}: it does not have one name and one step for each task")
        return found

    def body(self) -> dict[str, Any]:
        """The facts of its own, by the name of the field: without content, identity and files."""
        entries: dict[str, Any] = to_builtins(self)
        return {name: entries[name] for name in entries if name not in _OF_THE_FILE}

    def write(
        self, directory: Path, files: Mapping[str, str], digests: Mapping[str, FileDigest]
    ) -> None:
        """Write the manifest that makes a directory a checkpoint.

        `files` are the sha256 of its files by relative path: with the identity, they decide the
        content id. `digests` are size and xxh3_128 of all its files.
        """
        content = content_id({"files": files, "identity": self.identity})
        body = {**self.body(), "files": files, "digests": digests}
        if self.ids:
            body["ids"] = self.ids
        write_manifest(directory, _KIND, dict(self.identity), content, body)
