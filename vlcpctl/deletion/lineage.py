"""Which checkpoints, and which unfinished work, depend on data that contains some pairs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import BATCH_NORM_FROM
from vlcpctl.core.errors import BadInput, OutputExists
from vlcpctl.core.words import Shown
from vlcpctl.data.precomputed.pseudo_texts import open_pseudo_texts
from vlcpctl.data.precomputed.teacher_targets import open_targets
from vlcpctl.data.splitting.known_keys import read_known
from vlcpctl.data.tasks.export_manifest import ExportManifest
from vlcpctl.deletion.places import CACHED, RANKS, TEXTS, TRIMMED, Stored
from vlcpctl.files.inputs import read_json_object
from vlcpctl.files.manifest import birth_id, manifest_as, read_manifest

_DATA = (
    *("tasks", "buffer", "reference", "targets", "pseudo_texts", "distractors"),
    BATCH_NORM_FROM,
)
_MODELS = ("previous", "teacher", "checkpoint", "base")


@dataclass(frozen=True)
class Dependent:
    """What was made from data or models: its content id, and the ids that it depends on."""

    path: Path
    content: str
    data: Set[str]
    models: Set[str] = frozenset()
    about: Mapping[str, Any] | None = None  # of a model, for the receipt


def ids_of(stored: Stored) -> list[str]:
    """The id of an artifact, and its content id; [] for files that have none.

    Raises BadInput if its manifest cannot be read.
    """
    if stored.kind in {RANKS, CACHED}:
        return []
    if stored.kind == TRIMMED:
        return [read_known(stored.path).content]
    if stored.kind == TEXTS:
        manifest = open_pseudo_texts(stored.path).metadata
    else:
        manifest = read_manifest(stored.path, stored.kind)
    return [birth_id(manifest, stored.path), str(manifest["content"])]


def dependents(stored: Iterable[Stored]) -> list[Dependent]:
    """All that depends on data or models. Raises BadInput if a manifest cannot be read."""
    makers = {
        "checkpoint": _checkpoint,
        "targets": _targets,
        TEXTS: lambda path: _computed(path, open_pseudo_texts(path).metadata),
        "embeddings": lambda path: _computed(path, read_manifest(path, "embeddings")),
        "export": _export,
    }
    return [makers[one.kind](one.path) for one in stored if one.kind in makers]


def affected(found: Sequence[Dependent], ids: Collection[str]) -> list[Dependent]:
    """Those that depend on one of the ids, directly or by way of other models."""
    chosen: list[Dependent] = []
    known, left = set(ids), list(found)
    while more := [one for one in left if known & (one.data | one.models)]:
        chosen += more
        left = [one for one in left if one not in more]
        known.update(one.content for one in more)
    return chosen


def _checkpoint(path: Path) -> Dependent:
    made = CheckpointManifest.read(path)
    models = {made.parent, made.start, *(made.parents or ()), *ids_in(made.identity, _MODELS)}
    data = {*made.tasks, *(made.ids.get(one, one) for one in ids_in(made.identity, _DATA))}
    about = {"run": made.run, "step": made.step, "seed": made.seed}
    return Dependent(path, made.content, data, {one for one in models if one is not None}, about)


def _targets(path: Path) -> Dependent:
    made = open_targets(path).manifest
    return Dependent(path, str(made["content"]), set(made["sources"]), {made["teacher"]})


def _computed(path: Path, made: Mapping[str, Any]) -> Dependent:
    data, models = (ids_in(made["identity"], names) for names in (_DATA, _MODELS))
    return Dependent(path, str(made["content"]), data, models)


def _export(path: Path) -> Dependent:
    """A data set for other programs, made from tasks; or the copy of a checkpoint."""
    made = manifest_as(path, "export", ExportManifest)
    if made.run is None:
        return Dependent(path, made.content, set(made.inputs))
    about = {"run": made.run, "step": made.step, "seed": made.seed}
    return Dependent(path, made.content, set(made.tasks), set(made.inputs), about)


def ids_in(values: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """The content ids in some fields of an identity, which are texts or lists of texts."""
    found: set[str] = set()
    for name in names:
        value = values.get(name)
        found.update(one for one in (value if isinstance(value, list) else [value]) if one)
    return found


def outdated_parts(
    unfinished: Iterable[Path], ids: Collection[str], known: Collection[str], shown: Shown
) -> list[Path]:
    """The unfinished work to delete: what commands computed of this data in parts.

    Also the state of a run that --force has put aside. Raises OutputExists for an unfinished
    training run on the data, and for all work on data whose content is not `known`.
    """
    found = []
    for partial in unfinished:
        uses, is_run = set[str](), False
        if any(partial.iterdir()):  # else it has not begun
            try:
                identity = read_json_object(partial / "identity.json")
            except BadInput:
                uses = {""}  # of nothing that is known
            else:
                semantic = identity.get("semantic")
                identity = semantic if isinstance(semantic, dict) else identity
                uses, is_run = ids_in(identity, _DATA), "run" in identity
        if not uses <= set(known):
            raise OutputExists(
                f"{shown(partial)} is unfinished work on data that is not under the given paths; "
                "give the paths of its data, too, or finish it or remove it"
            )
        if not uses & set(ids):
            continue
        if is_run and partial.parent.name != "replaced":
            raise OutputExists(
                f"{shown(partial)} is an unfinished run on data that contains the pairs; finish it "
                "or remove it"
            )
        found.append(partial)
    return found
