"""What an artifact is and what it was made from, back to the raw data, by the ids in manifests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.manifest import content_of, kind_of, read_manifest
from vlcpctl.core.printable import printable
from vlcpctl.data.precomputed.pseudo_texts import open_pseudo_texts
from vlcpctl.inspection.diagnosis import why_no_artifact

# Limits of the search for an artifact's parents.
_LEVELS = 3  # of subdirectories
_MOST_DIRECTORIES = 10_000

_HEADLINE = ("name", "run", "method", "step", "texts", "pairs", "views", "width")


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
    if kind is None:
        return _described_texts(path)
    return _describe(path, kind, _artifacts_near(path), seen=frozenset())


def _described_texts(path: Path) -> dict[str, Any]:
    """As `describe`, for a file of pseudo texts, whose manifest is in its Parquet metadata."""
    file, near = open_pseudo_texts(path), _artifacts_near(path)
    made_from = [ParentArtifact(role, file.identity[role]) for role in ("checkpoint", "buffer")]
    return {
        "path": str(path),
        "kind": "pseudo texts",
        "content": file.content,
        "texts": file.count,
        "parents": [_parent(parent, near, frozenset()) for parent in made_from],
    }


def _describe(
    path: Path, kind: str, near: dict[str, tuple[str, Path]], seen: frozenset[str]
) -> dict[str, Any]:
    if kind == "checkpoint":
        checkpoint = CheckpointManifest.read(path)
        facts, parents = _facts_of_checkpoint(checkpoint), _parents_of_checkpoint(checkpoint)
    else:
        manifest = read_manifest(path, kind)
        facts, parents = _facts(manifest, kind), _parents(manifest, kind)
    seen |= {facts["content"]}
    return {
        "path": str(path),
        **facts,
        "parents": [_parent(parent, near, seen) for parent in parents],
    }


def _facts_of_checkpoint(checkpoint: CheckpointManifest) -> dict[str, Any]:
    return {
        "kind": "checkpoint",
        "content": checkpoint.content,
        "run": checkpoint.run,
        "method": checkpoint.method,
        "step": checkpoint.step,
        "made_by": checkpoint.made_by,
        "tasks": checkpoint.tasks,
        **({"warnings": checkpoint.warnings} if checkpoint.warnings else {}),
    }


def _facts(manifest: dict[str, Any], kind: str) -> dict[str, Any]:
    is_buffer = kind == "task" and manifest.get("buffer") is not None
    names = ("name", "step", "made_by", "rule", "tasks", "totals", "skipped", "warnings")
    facts = {
        "kind": "buffer" if is_buffer else kind,
        "content": str(manifest["content"]),
        **{name: manifest[name] for name in names if name in manifest},
    }
    if kind == "targets":
        facts |= {name: manifest[name] for name in ("pairs", "views", "width")}
    if kind == "task":
        facts["splits"] = {name: split["images"] for name, split in manifest["splits"].items()}
    return facts


def _parent(
    parent: ParentArtifact, near: dict[str, tuple[str, Path]], seen: frozenset[str]
) -> dict[str, Any]:
    if parent.content in near and parent.content not in seen:
        kind, path = near[parent.content]
        return {"role": parent.role, **_describe(path, kind, near, seen)}
    return {
        "role": parent.role,
        "content": parent.content,
        "note": parent.note or "not found nearby",
    }


def _parents_of_checkpoint(checkpoint: CheckpointManifest) -> list[ParentArtifact]:
    """The direct parents of a checkpoint, each with its role."""
    parents = checkpoint.parents or [one for one in (checkpoint.parent,) if one]
    return [
        *(ParentArtifact("parent", content) for content in parents),
        # Only the last task: the earlier ones are listed under the parent checkpoint.
        *(ParentArtifact("task", content) for content in checkpoint.tasks[-1:]),
        *([_origin(checkpoint.origin)] if checkpoint.origin else []),
    ]


def _parents(manifest: dict[str, Any], kind: str) -> list[ParentArtifact]:
    """The direct parents recorded in the manifest of any other artifact, each with its role."""
    if kind == "targets":
        pairs = [ParentArtifact("pairs", content) for content in manifest["sources"]]
        return [ParentArtifact("teacher", manifest["teacher"]), *pairs]
    if manifest.get("buffer"):
        return [ParentArtifact("task", content) for content in manifest["buffer"].get("seen", ())]
    if manifest.get("stream"):
        return [ParentArtifact("stream", manifest["stream"])]
    return [_input(one) for one in manifest.get("inputs", [])]


def _origin(one: Mapping[str, Any]) -> ParentArtifact:
    """The file that a checkpoint was imported from."""
    ran = ", its code was run" if one["ran_code"] else ""
    return ParentArtifact(
        "imported from", one["sha256"], f"{one['name']}, {one['bytes']} bytes{ran}"
    )


def _input(one: dict[str, Any] | str) -> ParentArtifact:
    if isinstance(one, str):
        return ParentArtifact("input", one)
    return ParentArtifact("raw data", one["content"], f"{one['name']}, {one['bytes']} bytes")


def _artifacts_near(path: Path) -> dict[str, tuple[str, Path]]:
    """Kind and path by content id of the artifacts near `path`.

    The search covers its parent directory and grandparent directory, to a limited depth.
    """
    path = path.resolve()
    found: dict[str, tuple[str, Path]] = {}
    for top in (path.parent, path.parent.parent):
        for place in islice(_directories(top), _MOST_DIRECTORIES):
            kind = kind_of(place)
            if kind is not None:
                with suppress(BadInput):  # a damaged neighbour must not stop the description
                    found.setdefault(content_of(place, kind), (kind, place))
    return found


def _directories(top: Path) -> Iterator[Path]:
    if top == top.parent:
        return  # do not search the whole file system
    for name, below, _ in os.walk(top):
        place = Path(name)
        yield place
        is_deep = len(place.relative_to(top).parts) >= _LEVELS
        below[:] = [] if is_deep else sorted(one for one in below if not one.startswith("."))


def lines(facts: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """The lines of an artifact: its facts, a stream's table of tasks, then its parents, indented.

    `facts` is what `lineage.describe` returns.
    """
    margin = "  " * depth
    role = f"{facts['role']}: " if "role" in facts else ""
    if "kind" not in facts:
        yield f"{margin}{role}{facts['content']} ({facts['note']})"
        return
    line_of_parent = ", ".join(
        f"{name} {facts[name]}" for name in _HEADLINE if facts.get(name) is not None
    )
    yield f"{margin}{role}{facts['kind']} {facts['path']}"
    yield f"{margin}  {line_of_parent + ', ' if line_of_parent else ''}content {facts['content']}"
    if facts["kind"] == "stream":
        yield from (margin + "  " + line for line in _table(facts["tasks"]))
    if "splits" in facts:
        counts = ", ".join(f"{images} {split}" for split, images in facts["splits"].items())
        yield f"{margin}  images: {counts}"
    if facts.get("skipped"):
        counts = ", ".join(f"{reason} {count}" for reason, count in facts["skipped"].items())
        yield f"{margin}  skipped: {counts}"
    for warning in facts.get("warnings") or ():
        yield f"{margin}  warning: {printable(warning)}"
    for parent in facts["parents"]:
        yield from lines(parent, depth + 1)


def _table(tasks: list[dict[str, Any]]) -> list[str]:
    """A header, and a line per task: its directory and the number of images in each split."""
    splits = list(dict.fromkeys(split for task in tasks for split in task["splits"]))
    width = max((len(task["path"]) for task in tasks), default=0)
    rows = ["task".ljust(width) + "".join(split.rjust(9) for split in splits)]
    for task in tasks:
        images = (task["splits"].get(split, {}).get("images", 0) for split in splits)
        rows.append(task["path"].ljust(width) + "".join(str(count).rjust(9) for count in images))
    return rows
