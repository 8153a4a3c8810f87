"""What an artifact is and what it was made from, back to the raw data, by the ids in manifests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import shown as model_name
from vlcpctl.checkpoints.step_config import BATCH_NORM_FROM, METHOD_CODE
from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.core.words import printable, shortened
from vlcpctl.data.tasks.facts import SplitCounts, StreamTask
from vlcpctl.files.inputs import converted, read_json_object
from vlcpctl.files.manifest import MANIFESTS, birth_id, kind_of, read_manifest
from vlcpctl.inspection.diagnosis import why_no_artifact
from vlcpctl.models.checkpoint_files import count_weights
from vlcpctl.models.configuration import in_words

# Limits of the search for an artifact's parents.
_LEVELS = 3  # of subdirectories
_MOST_DIRECTORIES = 10_000
_MOST_GENERATIONS = 200  # below Python's limit of nested calls
_SHA256, _SHOWN = 64, 8  # digits of the digest of a foreign file, and those that people see
_MOST_PARENTS = 2000  # in all: averages of averages have twice as many in every generation

# Errors that an unforeseen change of a manifest may cause.
_DAMAGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
_HEADLINE = ("name", "run", "method", "parameters", "step", "texts", "pairs", "views", "width")


@dataclass(frozen=True)
class _Facts:
    """Entries of manifests that are shown as they are, if the artifact has them."""

    name: str | None = None
    step: int | None = None
    made_by: dict[str, Any] | None = None
    rule: dict[str, Any] | None = None
    tasks: list[Any] | None = None
    totals: dict[str, Any] | None = None
    skipped: dict[str, Any] | None = None
    kept_columns: list[str] | None = None
    in_place: bool | None = None
    warnings: list[str] | None = None


@dataclass(frozen=True)
class _OfTargets:
    """Sizes of targets."""

    pairs: int
    views: int
    width: int


@dataclass(frozen=True)
class ParentArtifact:
    """Something an artifact was made from."""

    role: str  # such as "task", "teacher" or "raw data"
    content: str  # its content id; for a foreign file its sha256
    note: str = ""  # name and size, for a file that is not an artifact


def describe(path: Path) -> dict[str, Any]:
    """The artifact at `path` as a JSON object, with its parents nested in "parents".

    A parent that is not found nearby is listed by content id only. Raises BadInput if `path` is not
    an artifact, or its manifest cannot be read.
    """
    why_not = why_no_artifact(path)
    if why_not is not None:
        raise BadInput(f"{path}: {why_not}")
    kind = kind_of(path)
    search = _Search(_artifacts_near(path))
    assert kind is not None, "it is an artifact"
    return _describe(path, kind, search, seen=())


@dataclass
class _Search:
    """Artifacts near the one described, by content id: kind, path and present content id."""

    near: dict[str, tuple[str, Path, str]]
    described: int = 0

    def place_of(self, content: str, seen: Sequence[str]) -> tuple[str, Path] | None:
        """Kind and path of a parent; None if it is not near, or too many were described."""
        kind, path, present = self.near.get(content, ("", Path(), content))
        if self.described >= _MOST_PARENTS or len(seen) >= _MOST_GENERATIONS or present in seen:
            return None
        return (kind, path) if kind else None


def _describe(path: Path, kind: str, search: _Search, seen: Sequence[str]) -> dict[str, Any]:
    search.described += 1
    with _naming_damage(path / MANIFESTS[kind]):
        if kind == "checkpoint":
            checkpoint = CheckpointManifest.read(path)
            facts, parents = _facts_of_checkpoint(checkpoint), _parents_of_checkpoint(checkpoint)
            if not seen and checkpoint.model is not None:
                said = {"is": in_words(str(path)), "weights": count_weights(path)}
                facts["model"] = {**checkpoint.model, **said}
        else:
            manifest = read_manifest(path, kind)
            facts = _facts(manifest, kind, path / MANIFESTS[kind])
            parents = _parents(manifest, kind, path / MANIFESTS[kind])
    seen = (*seen, facts["content"])
    return {
        "path": str(path),
        **facts,
        "parents": [_parent(parent, search, seen) for parent in parents],
    }


@contextmanager
def _naming_damage(manifest: Path) -> Iterator[None]:
    """Raise BadInput, naming the manifest, for errors that come from its entries."""
    try:
        yield
    except _DAMAGE as error:
        raise BadInput(
            f"{manifest} has an entry that is missing or of another type ({first_line(error)}); "
            "run 'vlcpctl check'"
        ) from error


def _facts_of_checkpoint(checkpoint: CheckpointManifest) -> dict[str, Any]:
    return {
        "kind": "checkpoint",
        "content": checkpoint.content,
        "run": checkpoint.run,
        "method": checkpoint.method,
        **({METHOD_CODE: code} if (code := checkpoint.identity.get(METHOD_CODE)) else {}),
        **({"parameters": values} if (values := checkpoint.rule_values) else {}),
        "step": checkpoint.step,
        "made_by": checkpoint.made_by,
        "tasks": checkpoint.tasks,
        **({"warnings": checkpoint.warnings} if checkpoint.warnings else {}),
    }


def _facts(manifest: Mapping[str, Any], kind: str, place: Path) -> dict[str, Any]:
    is_buffer = kind == "task" and manifest.get("buffer") is not None
    converted(manifest, _Facts, place)  # raises for one of another type
    facts = {
        "kind": "buffer" if is_buffer else kind,
        "content": manifest["content"],
        **_id(manifest, place),
        **{one.name: manifest[one.name] for one in fields(_Facts) if one.name in manifest},
    }
    if kind == "targets":
        facts |= asdict(converted(manifest, _OfTargets, place))
    if kind == "pseudo-texts":
        facts["texts"] = converted(manifest["texts"], int, f"{place}, texts")
    if kind == "task":
        splits = converted(manifest["splits"], dict[str, SplitCounts], f"{place}, splits")
        facts["splits"] = {name: split.images for name, split in splits.items()}
    if kind == "stream":
        converted(manifest["tasks"], list[StreamTask], f"{place}, tasks")
    return facts


def _id(manifest: Mapping[str, Any], place: object) -> dict[str, Any]:
    """The id, if the artifact was rewritten."""
    own = birth_id(manifest, place)
    return {"id": own} if own != manifest["content"] else {}


def _parent(parent: ParentArtifact, search: _Search, seen: Sequence[str]) -> dict[str, Any]:
    found = search.place_of(parent.content, seen)
    note = parent.note or "not found nearby"
    if found:
        kind, path = found
        try:
            return {"role": parent.role, **_describe(path, kind, search, seen)}
        except (BadInput, OSError) as error:  # a damaged neighbour must not stop the description
            note = f"cannot be described: {error}"
    elif parent.content in search.near:
        is_seen = search.near[parent.content][2] in seen
        note = "not described again" if is_seen else "too many parents"
    return {"role": parent.role, "content": parent.content, "note": note}


def _parents_of_checkpoint(checkpoint: CheckpointManifest) -> list[ParentArtifact]:
    """The direct parents of a checkpoint, each with its role."""
    parents = checkpoint.parents or [one for one in (checkpoint.parent,) if one]
    others = {"base": "base", "batch norms": BATCH_NORM_FROM}  # fields of the identity, by role
    found = {role: checkpoint.identity.get(name) for role, name in others.items()}
    return [
        *(ParentArtifact("parent", str(content)) for content in parents),
        *(ParentArtifact(role, str(content)) for role, content in found.items() if content),
        # Only the last task: the earlier ones are listed under the parent checkpoint.
        *(ParentArtifact("task", str(content)) for content in checkpoint.tasks[-1:]),
        *([_origin(checkpoint.origin)] if checkpoint.origin else []),
    ]


def _parents(manifest: Mapping[str, Any], kind: str, place: Path) -> list[ParentArtifact]:
    """The direct parents recorded in the manifest of any other artifact, each with its role."""
    if kind == "targets":
        sources = converted(manifest["sources"], list[str], f"{place}, sources")
        teacher = converted(manifest["teacher"], str, f"{place}, teacher")
        return [
            ParentArtifact("teacher", teacher),
            *(ParentArtifact("pairs", content) for content in sources),
        ]
    if kind == "pseudo-texts":
        made = converted(manifest["identity"], dict[str, Any], f"{place}, identity")
        return [ParentArtifact(role, str(made[role])) for role in ("checkpoint", "buffer")]
    if manifest.get("buffer"):
        seen = converted(manifest["buffer"], dict[str, Any], f"{place}, buffer").get("seen", ())
        return [ParentArtifact("task", str(content)) for content in seen]
    if manifest.get("stream"):
        return [ParentArtifact("stream", converted(manifest["stream"], str, f"{place}, stream"))]
    inputs = converted(manifest.get("inputs") or [], list[Any], f"{place}, inputs")
    return [_input(one) for one in inputs]


def _origin(one: Mapping[str, Any]) -> ParentArtifact:
    """The file that a checkpoint was imported from."""
    ran = ", its code was run" if one["ran_code"] else ""
    return ParentArtifact(
        "imported from", str(one["sha256"]), f"{one['name']}, {one['bytes']} bytes{ran}"
    )


def _input(one: dict[str, Any] | str) -> ParentArtifact:
    if isinstance(one, str):
        return ParentArtifact("input", one)
    return ParentArtifact("raw data", str(one["content"]), f"{one['name']}, {one['bytes']} bytes")


def _artifacts_near(path: Path) -> dict[str, tuple[str, Path, str]]:
    """Kind, path and present content id of the artifacts near `path`, by content id.

    Rewritten data is also there under its id, unless other data has that. The search covers its
    parent and grandparent directory, and the attempts of its state directory, to a limited depth.
    """
    path = path.resolve()
    states = [top / "attempts" for top in path.parents if (top / "state.json").is_file()]
    found: dict[str, tuple[str, Path, str]] = {}
    earlier: dict[str, tuple[str, Path, str]] = {}
    for top in (path.parent, path.parent.parent, *states):
        for place in islice(_directories(top), _MOST_DIRECTORIES):
            # A neighbour that is damaged or not ours to read must not stop the description.
            with suppress(BadInput, OSError):
                kind = kind_of(place)
                if kind is not None:
                    manifest = read_json_object(place / MANIFESTS[kind])  # its seal may differ
                    here = kind, place, str(manifest.get("content"))
                    found.setdefault(here[2], here)
                    earlier.setdefault(birth_id(manifest, place), here)
    return earlier | found


def _directories(top: Path) -> Iterator[Path]:
    if top == top.parent:
        return  # do not search the whole file system
    for name, below, _ in os.walk(top):
        place = Path(name)
        yield place
        is_deep = len(place.relative_to(top).parts) >= _LEVELS
        below[:] = [] if is_deep else sorted(one for one in below if not one.startswith("."))


def lines(
    facts: dict[str, Any], shown: Callable[[str], str] = str, depth: int = 0
) -> Iterator[str]:
    """The lines of an artifact: its facts, a stream's table of tasks, then its parents, indented.

    `facts` is what `lineage.describe` returns; `shown` gives the text of a path.
    """
    margin = "  " * depth
    role = f"{facts['role']}: " if "role" in facts else ""
    if "kind" not in facts:
        digits = _SHOWN if len(facts["content"]) == _SHA256 else None
        yield f"{margin}{role}{facts['content'][:digits]} ({facts['note']})"
        return
    line_of_parent = ", ".join(
        f"{name} {facts[name]}" for name in _HEADLINE if facts.get(name) is not None
    )
    yield f"{margin}{role}{facts['kind']} {shown(facts['path'])}"
    yield f"{margin}  {line_of_parent + ', ' if line_of_parent else ''}content {facts['content']}"
    if "id" in facts:
        yield f"{margin}  rewritten by 'vlcpctl forget', id {facts['id']}"
    yield from (f"{margin}  {line}" for line in _lines_of_facts(facts))
    for parent in facts["parents"]:
        yield from lines(parent, shown, depth + 1)


def _lines_of_facts(facts: dict[str, Any]) -> Iterator[str]:
    """Lines about an artifact that only some kinds have."""
    if model := facts.get("model"):
        words = f"{model['is'] or 'model'}, {model['weights']:,} weights"
        yield f"model: {printable(model_name(model))} ({words})"
    yield from _lines_of_data(facts)
    for name, code in facts.get(METHOD_CODE, {}).items():
        own = code.get("file") or f"{code.get('distribution')} {code.get('version')}"
        yield f"code of method {name}: {printable(own)}"
    for warning in facts.get("warnings") or ():
        yield f"warning: {printable(warning)}"


def _lines_of_data(facts: dict[str, Any]) -> Iterator[str]:
    """Lines about the pairs of a stream, task or buffer."""
    if facts["kind"] == "stream":
        yield from _table(facts["tasks"])
    if "splits" in facts:
        counts = ", ".join(f"{images} {split}" for split, images in facts["splits"].items())
        yield f"images: {counts}"
    if facts.get("in_place"):
        yield "made in place: its images are in the tars of its sources"
    if facts.get("skipped"):
        counts = ", ".join(f"{reason} {count}" for reason, count in facts["skipped"].items())
        yield f"skipped: {counts}"
    if facts.get("kept_columns"):
        yield f"kept columns: {', '.join(map(shortened, facts['kept_columns']))}"


def _table(tasks: list[dict[str, Any]]) -> list[str]:
    """A header, and a line per task: its directory and the number of images in each split."""
    splits = list(dict.fromkeys(split for task in tasks for split in task["splits"]))
    width = max((len(task["path"]) for task in tasks), default=0)
    rows = ["task".ljust(width) + "".join(split.rjust(9) for split in splits)]
    for task in tasks:
        images = (task["splits"].get(split, {}).get("images", 0) for split in splits)
        rows.append(task["path"].ljust(width) + "".join(str(count).rjust(9) for count in images))
    return rows
