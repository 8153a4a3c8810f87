"""Reads task.json and stream.json, checking the types of their fields and that they agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.hashing import content_id
from vlcpctl.core.limits import MOST_TASKS
from vlcpctl.core.manifest import MANIFESTS, read_manifest
from vlcpctl.core.recorded_files import RESTORE
from vlcpctl.core.seals import broken_seal
from vlcpctl.data.tasks.index import SPLITS, is_own_column
from vlcpctl.data.tasks.index_checks import is_file_name
from vlcpctl.data.tasks.manifests import content_with

Manifest = dict[str, Any]
_CHANGED = "has changed since it was written:"


def read_task(path: Path) -> Manifest:
    """The manifest of a task or buffer. Raises BadInput if there is none or it is not consistent.

    The files that it lists are not read.
    """
    manifest = read_typed(path, "task")
    for problem in task_problems(path, manifest):
        raise BadInput(problem)
    return manifest


def read_stream(path: Path) -> Manifest:
    """The manifest of a stream. Raises BadInput if there is none or it is not consistent.

    The manifests of its tasks are not read.
    """
    manifest = read_typed(path, "stream")
    for problem in stream_problems(path, manifest):
        raise BadInput(problem)
    return manifest


def read_typed(path: Path, kind: str) -> Manifest:
    """The manifest of a task or stream; the type of every field that readers use is checked.

    Raises BadInput if there is none, or a field is missing, mistyped or out of bounds.
    """
    manifest = read_manifest(path, kind)
    fields = Fields(manifest, path / MANIFESTS[kind])
    (_check_task_types if kind == "task" else _check_stream_types)(fields)
    return manifest


def task_problems(path: Path, manifest: Manifest) -> Iterator[str]:
    """Yield a line for each contradiction in a task's manifest, as `read_typed` returns it."""
    place = path / MANIFESTS["task"]
    contents = {name: split["content"] for name, split in manifest["splits"].items()}
    content = content_id({"name": manifest["name"], "splits": contents})
    features = manifest.get("buffer", {}).get("features")
    if content_with(content, features) != manifest["content"]:
        yield f"{place} {_CHANGED} its content id does not match its splits{RESTORE}"
    yield from _seal_problems(place, manifest)


def stream_problems(path: Path, manifest: Manifest) -> Iterator[str]:
    """Yield a line for each contradiction in a stream's manifest, as `read_typed` returns it."""
    place = path / MANIFESTS["stream"]
    if content_id({"tasks": [one["content"] for one in manifest["tasks"]]}) != manifest["content"]:
        yield f"{place} {_CHANGED} its content id does not match its tasks{RESTORE}"
    yield from _seal_problems(place, manifest)


def _seal_problems(place: Path, manifest: Manifest) -> Iterator[str]:
    broken = broken_seal(place, manifest)
    if broken is not None:
        yield f"{broken}{RESTORE}"


def _check_task_types(fields: Fields) -> None:
    fields("name", str)
    slug = fields("slug", str)
    if not is_file_name(slug):
        raise BadInput(f"{fields.place}: slug is {slug!r:.80}, not the name of a directory")
    _check_step(fields)
    fields.texts("labels", ())
    _check_kept(fields)
    for name, split in fields("splits", dict).items():
        if name not in SPLITS:
            raise BadInput(f"{fields.place}: unknown split {name!r:.80}")
        _check_split(_nested(split, fields.place, f"split {name!r}"))
    fields("stream", str, None)
    if "buffer" in fields.value:
        _check_buffer(_nested(fields.value["buffer"], fields.place, "field 'buffer'"))


def _check_kept(fields: Fields) -> None:
    kept = fields.texts("kept_columns", ())
    wrong = [name for name in kept if is_own_column(name) or kept.count(name) > 1]
    if wrong:
        found = f"kept_columns has {wrong[0]!r:.80} twice, or it is the index's own"
        raise BadInput(f"{fields.place}: {found}")


def _check_step(fields: Fields) -> None:
    step, tasks = fields("step", int, None), fields("tasks_in_stream", int, None)
    if step is not None and not 0 <= step < MOST_TASKS:
        raise BadInput(f"{fields.place}: step is {step}, not between 0 and {MOST_TASKS - 1}")
    if tasks is not None and not 1 <= tasks <= MOST_TASKS:
        found = f"tasks_in_stream is {tasks}, not between 1 and {MOST_TASKS}"
        raise BadInput(f"{fields.place}: {found}")


def _check_split(split: Fields) -> None:
    split("content", str)
    for name in ("images", "captions", "bytes"):
        if split(name, int) < 0:
            raise BadInput(f"{split.place}: field {name!r} is negative")
    shards = split.texts("shards")
    unsafe = [name for name in shards if not is_file_name(name)]
    if unsafe:
        raise BadInput(f"{split.place}: shard {unsafe[0]!r:.80} is not the name of a file")
    sizes = split("shard_bytes", list, None)
    if sizes is not None and (len(sizes) != len(shards) or not all(map(_is_size, sizes))):
        raise BadInput(f"{split.place}: shard_bytes is not one size in bytes for each shard")
    for name in ("index", "rows"):
        digest = split(name, dict, None)
        if digest is not None:
            _nested(digest, split.place, f"field {name!r}")("bytes", int)


def _check_buffer(buffer: Fields) -> None:
    for name in ("seen", "shard_rows"):
        for key, count in buffer(name, dict).items():
            if not _is_size(count):
                raise BadInput(f"{buffer.place}: {name} of {key!r:.80} is not a number of images")
    features = buffer("features", dict, None)
    if features is not None:
        stored = _nested(features, buffer.place, "field 'features'")
        stored("content", str)
        stored("width", int)


def _check_stream_types(fields: Fields) -> None:
    tasks = fields("tasks", list)
    if len(tasks) > MOST_TASKS:
        raise BadInput(f"{fields.place} lists {len(tasks)} tasks, the limit is {MOST_TASKS}")
    for number, task in enumerate(tasks):
        entry = _nested(task, fields.place, f"task {number}")
        path = entry("path", str)
        if not is_file_name(path):
            raise BadInput(f"{entry.place}: path {path!r:.80} is not a directory in the stream")
        entry("content", str)
        for name, split in entry("splits", dict).items():
            _nested(split, entry.place, f"split {name!r:.80}")("images", int)


def _nested(value: object, place: object, name: str) -> Fields:
    if not isinstance(value, dict):
        raise BadInput(f"{place}: {name} is {value!r:.80}, not an object")
    return Fields(value, f"{place}, {name}")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
