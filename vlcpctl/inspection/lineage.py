"""What an artifact is and what it was made from, back to the raw data, by the ids in manifests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import shown as model_name
from vlcpctl.checkpoints.step_config import BATCH_NORM_FROM, METHOD_CODE
from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.core.words import printable, shortened
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.files.inputs import read_json_object
from vlcpctl.files.manifest import MANIFESTS, birth_id, kind_of, read_manifest
from vlcpctl.inspection.diagnosis import why_no_artifact
from vlcpctl.models.checkpoint_files import count_weights
from vlcpctl.models.configuration import in_words

# Limits of the search for an artifact's parents.
_LEVELS = 3  # of subdirectories
_MOST_DIRECTORIES = 10_000
_MOST_GENERATIONS = 200  # below Python's limit of nested calls
_MOST_PARENTS = 2000  # in all: averages of averages have twice as many in every generation
_SHA256, _SHOWN = 64, 8  # digits of the digest of a foreign file, and those that people see

# Errors that an unforeseen change of a manifest may cause.
_DAMAGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
_HEADLINE = ("name", "run", "method", "parameters", "step", "texts", "pairs", "views", "width")
# Entries of manifests that are shown as they are, if the artifact has them.
_AS_THEY_ARE = (
    *("name", "step", "made_by", "rule", "tasks", "totals", "skipped", "kept_columns", "in_place"),
    "warnings",
)
_OF_KIND = {"targets": ("pairs", "views", "width"), "pseudo-texts": ("texts",)}

Facts = dict[str, Any]


class _Parent(NamedTuple):
    """Something an artifact was made from."""

    role: str  # such as "task", "teacher" or "raw data"
    content: Any  # its content id; for a foreign file its sha256
    note: str = "not found nearby"  # or name and size, for a file that is not an artifact


def describe(path: Path) -> Facts:
    """The artifact at `path` as a JSON object, with its parents nested in "parents".

    A parent that is not found nearby is listed by content id only. Raises BadInput if `path` is not
    an artifact, or its manifest cannot be read.
    """
    why_not = why_no_artifact(path)
    if why_not is not None:
        raise BadInput(f"{path}: {why_not}")
    return _Search(path).describe(path)


class _Search:
    """A description of an artifact, whose parents are looked for near it."""

    def __init__(self, path: Path) -> None:
        self._near = _artifacts_near(path)
        self._described = 0

    def describe(self, path: Path, seen: tuple[str, ...] = ()) -> Facts:
        """The facts about an artifact; `seen` are the content ids of what was made from it."""
        self._described += 1
        kind = kind_of(path)
        assert kind is not None, "it is an artifact"
        try:
            facts, parents = (_checkpoint if kind == "checkpoint" else _other)(path, kind)
        except _DAMAGE as error:
            raise BadInput(
                f"{path / MANIFESTS[kind]} has an entry that is missing or of another type "
                f"({first_line(error)}); run 'vlcpctl check'"
            ) from error
        if seen:
            facts.pop("model", None)
        elif "model" in facts:
            facts["model"] |= {"is": in_words(str(path)), "weights": count_weights(path)}
        seen = (*seen, facts["content"])
        found = [self._parent(one._replace(content=str(one.content)), seen) for one in parents]
        return {"path": str(path), **facts, "parents": found}

    def _parent(self, parent: _Parent, seen: tuple[str, ...]) -> Facts:
        note = parent.note
        if parent.content in self._near:
            path, present = self._near[parent.content]
            if present in seen:
                note = "not described again"
            elif self._described >= _MOST_PARENTS or len(seen) >= _MOST_GENERATIONS:
                note = "too many parents"
            else:
                try:
                    return {"role": parent.role, **self.describe(path, seen)}
                except (BadInput, OSError) as error:  # of a damaged neighbour
                    note = f"cannot be described: {error}"
        return {"role": parent.role, "content": parent.content, "note": note}


def _checkpoint(path: Path, kind: str) -> tuple[Facts, list[_Parent]]:
    made = CheckpointManifest.read(path)
    more = {
        METHOD_CODE: made.identity.get(METHOD_CODE),
        "parameters": made.rule_values,
        "warnings": made.warnings,
        "model": made.model and dict(made.model),
    }
    names = ("content", "run", "method", "step", "made_by", "tasks")
    facts = {"kind": kind, **{name: getattr(made, name) for name in names}}
    # Only the last task: the earlier ones are listed under the parent checkpoint.
    last = made.tasks[-1:]
    parents = [_Parent("parent", one) for one in made.parents or (made.parent,) if one]
    for role, name in (("base", "base"), ("batch norms", BATCH_NORM_FROM)):
        parents += [_Parent(role, one) for one in (made.identity.get(name),) if one]
    parents += [_Parent("task", one) for one in last]
    if made.origin:
        ran = ", its code was run" if made.origin["ran_code"] else ""
        parents.append(_file("imported from", made.origin["sha256"], made.origin, ran))
    return facts | {name: value for name, value in more.items() if value}, parents


def _other(path: Path, kind: str) -> tuple[Facts, list[_Parent]]:
    """The facts and the parents that the manifest of any other artifact records."""
    made, place = read_manifest(path, kind), path / MANIFESTS[kind]
    facts: Facts = {"kind": kind, "content": made["content"]}
    if (own := birth_id(made, place)) != made["content"]:
        facts["id"] = own
    facts |= {name: made[name] for name in _AS_THEY_ARE if name in made}
    facts |= {name: made[name] for name in _OF_KIND.get(kind, ())}
    if kind == "stream":
        read_stream(path)  # raises for an entry of another type
    if kind == "task":
        splits = read_task(path).splits
        facts["splits"] = {name: split.images for name, split in splits.items()}
        facts["kind"] = "task" if made.get("buffer") is None else "buffer"
    return facts, list(_parents(made, kind))


def _parents(made: Mapping[str, Any], kind: str) -> Iterator[_Parent]:
    if kind == "targets":
        yield _Parent("teacher", made["teacher"])
        yield from (_Parent("pairs", content) for content in made["sources"])
    elif kind == "pseudo-texts":
        yield from (_Parent(role, made["identity"][role]) for role in ("checkpoint", "buffer"))
    elif made.get("buffer"):
        yield from (_Parent("task", content) for content in made["buffer"].get("seen", ()))
    elif made.get("stream"):
        yield _Parent("stream", made["stream"])
    else:
        for one in made.get("inputs") or ():
            is_id = isinstance(one, str)
            yield _Parent("input", one) if is_id else _file("raw data", one["content"], one)


def _file(role: str, digest: str, about: Mapping[str, Any], more: str = "") -> _Parent:
    return _Parent(role, digest, f"{about['name']}, {about['bytes']} bytes{more}")


def _artifacts_near(path: Path) -> dict[str, tuple[Path, str]]:
    """Path and present content id of the artifacts near `path`, by content id.

    Rewritten data is also there under its id, unless other data has that. The search covers its
    parent and grandparent directory, and the attempts of its state directory, to a limited depth.
    """
    path = path.resolve()
    states = [top / "attempts" for top in path.parents if (top / "state.json").is_file()]
    found: dict[str, tuple[Path, str]] = {}
    earlier: dict[str, tuple[Path, str]] = {}
    for top in (path.parent, path.parent.parent, *states):
        for place in islice(_directories(top), _MOST_DIRECTORIES):
            # A neighbour that is damaged or not ours to read must not stop the description.
            with suppress(BadInput, OSError):
                kind = kind_of(place)
                if kind is not None:
                    manifest = read_json_object(place / MANIFESTS[kind])  # its seal may differ
                    here = place, str(manifest.get("content"))
                    found.setdefault(here[1], here)
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


def lines(facts: Facts, shown: Callable[[str], str] = str, depth: int = 0) -> Iterator[str]:
    """The lines of an artifact: its facts, a stream's table of tasks, then its parents, indented.

    `facts` is what `lineage.describe` returns; `shown` gives the text of a path.
    """
    margin = "  " * depth
    role = f"{facts['role']}: " if "role" in facts else ""
    if "kind" not in facts:
        digits = _SHOWN if len(facts["content"]) == _SHA256 else None
        yield f"{margin}{role}{facts['content'][:digits]} ({facts['note']})"
        return
    named = [f"{name} {facts[name]}" for name in _HEADLINE if facts.get(name) is not None]
    yield f"{margin}{role}{facts['kind']} {shown(facts['path'])}"
    yield f"{margin}  {', '.join([*named, ''])}content {facts['content']}"
    if "id" in facts:
        yield f"{margin}  rewritten by 'vlcpctl forget', id {facts['id']}"
    yield from (f"{margin}  {line}" for line in _lines_of_facts(facts))
    for parent in facts["parents"]:
        yield from lines(parent, shown, depth + 1)


def _lines_of_facts(facts: Facts) -> Iterator[str]:
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


def _lines_of_data(facts: Facts) -> Iterator[str]:
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


def _table(tasks: list[Facts]) -> Iterator[str]:
    """A header, and a line per task: its directory and the number of images in each split."""
    splits = list(dict.fromkeys(split for task in tasks for split in task["splits"]))
    width = max((len(task["path"]) for task in tasks), default=0)
    yield "task".ljust(width) + "".join(split.rjust(9) for split in splits)
    for task in tasks:
        images = (task["splits"].get(split, {}).get("images", 0) for split in splits)
        yield task["path"].ljust(width) + "".join(str(count).rjust(9) for count in images)
