"""Manifests: the file that makes a directory an artifact, and its identity.

docs/reference/manifests.md is made from the texts below the fields of `Manifest` and of those that
add to it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

import vlcpctl
from vlcpctl.core.errors import BadInput, missing
from vlcpctl.core.printable import utf8_json, without_secrets
from vlcpctl.files.foreign import refuse_foreign
from vlcpctl.files.input_files import open_regular
from vlcpctl.files.safe_json import read_json
from vlcpctl.files.staging import read_path
from vlcpctl.files.structs import converted

# What an artifact is, and the manifest that makes its directory exist.
MANIFESTS = {
    "stream": "stream.json",
    "task": "task.json",
    "checkpoint": "checkpoint.json",
    "targets": "targets.json",
    "embeddings": "embeddings.json",
    "report": "summary.json",
    "tables": "tables.json",
    "figures": "figures.json",
    # Hidden: it must not be among the files that a loader of another program finds.
    "export": ".vlcpctl/export.json",
}

_MOST_BYTES = 1 << 26  # of a manifest: some 100,000 tasks; values take ten times as much memory
# Of a report, whose manifest held all its numbers in 0.3: `forget` reads both.
_MOST_BYTES_OF = {"report": 1 << 28}
_MAJOR = {"report": "[12]"}  # versions that are read; of others 1
# How every manifest starts: enough to see that a large one, such as a report's of 40 MB, is ours.
_READ_WHOLE = 1 << 20
_START = re.compile(rb'\{\s*"schema":\s*"vlcpctl\.')


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The fields that all manifests share."""

    schema: str = ""
    """Kind and version of the format, such as `vlcpctl.task/1`."""
    content: str = ""
    """Content id: a digest of the data, the same on every machine."""
    identity: Mapping[str, Any]
    """Settings and inputs that decide the result; compared when the command runs again."""
    seal: str = ""
    """Digest of all other fields but `schema` and `made_by`, which detects changes."""
    id: str = ""
    """Content id that it was made with. Only if `forget` has rewritten it since, else it is
    `content`."""
    made_by: Mapping[str, Any] = field(default_factory=dict)
    """Version of vlcpctl and of Python, command line, and time; part of no id."""

    @property
    def is_rewritten(self) -> bool:
        """Whether `vlcpctl forget` has rewritten the artifact."""
        return self.id != self.content


class _Birth(Struct):
    content: str = ""
    id: str = ""
    was: tuple[str, ...] = ()  # all earlier ids, which version 0.3 recorded


def birth_id(manifest: Mapping[str, Any], place: object) -> str:
    """The content id with which an artifact was made, which it keeps when `forget` rewrites it.

    `place` is the manifest's file. Raises BadInput if an id is not text.
    """
    found = converted(manifest, _Birth, place)
    return found.id or next(iter(found.was), found.content)


def rewritten(
    manifest: Mapping[str, Any], content: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a manifest with some changed, and a new content id under the same id."""
    own = birth_id(manifest, "manifest")
    kept = {name: value for name, value in manifest.items() if name not in {"id", "was"}}
    return {**kept, "content": content, **changes, **({"id": own} if own != content else {})}


def write_manifest(
    directory: Path, kind: str, identity: dict[str, Any], content: str, body: dict[str, Any]
) -> None:
    """Write the manifest that makes a directory of this kind exist.

    `identity` is the semantic settings, compared when the command runs again; `content` is the id
    of the data; `body` is what readers need. Who made it and when is added, and is not part of
    any id. Bytes of a path that are not UTF-8 are written as backslash escapes.
    """
    manifest = {
        "schema": f"vlcpctl.{kind}/1",
        "content": content,
        "identity": identity,
        **body,
        "made_by": {
            "version": vlcpctl.__version__,
            "argv": [without_secrets(word) for word in sys.argv],
            "python": sys.version.split()[0],
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    # In parts, since a manifest may list many files.
    parts = json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(manifest)
    with (directory / MANIFESTS[kind]).open("w", encoding="utf-8") as file:
        for part in parts:
            file.write(utf8_json(part))
        file.write("\n")


def read_manifest(directory: Path, kind: str) -> dict[str, Any]:
    """The manifest of an artifact, of which the fields of `Manifest` are checked.

    Raises BadInput if there is no manifest, it cannot be read, or it is of a schema of which this
    version does not know: any minor version (`vlcpctl.task/1.2`) is read.
    """
    path = read_path(directory) / MANIFESTS[kind]
    if not path.is_file():
        found = kind_of(directory)
        described = f" (it is {with_article(found)})" if found else _parts_of_state(directory, kind)
        if not described:
            refuse_foreign(read_path(directory), kind)
        if not read_path(directory).exists():
            raise BadInput(missing(directory))
        raise BadInput(
            f"{directory} is not {with_article(kind)}: it has no {MANIFESTS[kind]}{described}"
        )
    entries = read_json(path, most_bytes=_MOST_BYTES_OF.get(kind, _MOST_BYTES))
    if not isinstance(entries, dict) or "schema" not in entries:
        raise BadInput(f"{path} has no schema; it was not written by vlcpctl")
    if not re.fullmatch(rf"vlcpctl\.{kind}/{_MAJOR.get(kind, 1)}(\.\d+)?", str(entries["schema"])):
        raise BadInput(
            f"{path} has schema {entries['schema']!r:.80}; this version reads vlcpctl.{kind}/1"
        )
    converted(entries, Manifest, path)
    return _Manifest(path, entries)


def _parts_of_state(directory: Path, kind: str) -> str:
    """What to give instead of a state directory of `update`; "" for any other directory."""
    try:
        schema = dict(read_json(directory / "state.json", most_bytes=_MOST_BYTES)).get("schema")
    except (BadInput, OSError, TypeError, ValueError):
        return ""
    if not str(schema).startswith("vlcpctl.state/"):
        return ""
    found = [directory / "current"]
    if kind in {"task", "stream"}:
        patterns = (
            ("weeks/*/stream/*/", "weeks/*/buffer") if kind == "task" else ("weeks/*/stream",)
        )
        found = [one for pattern in patterns for one in sorted(directory.glob(pattern))[-1:]]
    shown = " or ".join(map(str, found))
    return f"; it is a state of 'vlcpctl update': give {shown}" if found else ""


def content_of(directory: Path, kind: str) -> str:
    """The content id of an artifact. Raises BadInput if the directory is not one of this kind."""
    return str(read_manifest(directory, kind)["content"])


class _Manifest(dict[str, Any]):
    """A manifest whose error for a missing entry names the file."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise BadInput(f"{self._path} has changed since it was written: it has no {name!r}")


def kind_of(directory: Path) -> str | None:
    """Which artifact a directory is by the name of its manifest, or None."""
    place = read_path(directory)
    return next((kind for kind, name in MANIFESTS.items() if (place / name).is_file()), None)


def is_artifact(directory: Path) -> bool:
    """Whether a directory has a manifest that vlcpctl wrote; its name alone is not enough."""
    for name in MANIFESTS.values():
        path = directory / name
        try:
            if path.stat().st_size > _READ_WHOLE:
                with open_regular(path) as file:
                    if _START.match(file.read(100)):
                        return True
            manifest = read_json(path, most_bytes=_MOST_BYTES)
        except (BadInput, OSError):
            continue
        if isinstance(manifest, dict) and str(manifest.get("schema")).startswith("vlcpctl."):
            return True
    return False


def with_article(kind: str) -> str:
    """A kind of artifact in words.

    >>> with_article("task"), with_article("targets")
    ('a task', 'a directory of targets')
    """
    several = {"targets", "embeddings", "tables", "figures"}
    if kind in several:
        return f"a directory of {kind}"
    return f"an {kind}" if kind.startswith("e") else f"a {kind}"


def identity_differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """The differences between two identities, one phrase per value, sorted by dotted name.

    >>> identity_differences({"seed": 0}, {"seed": 1})
    ['seed was 0 and is now 1']
    >>> identity_differences({"settings": {"lr": 0.1, "eps": 0}}, {"settings": {"lr": 1, "eps": 0}})
    ['settings.lr was 0.1 and is now 1']
    """
    there, here = dict(leaves(found)), dict(leaves(wanted))
    return [
        f"{name} was {_shown(there.get(name))} and is now {_shown(here.get(name))}"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)


def leaves(values: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted name, as they read back from JSON.

    An identity on disk has lists where one in memory has tuples; that is not a difference.
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", json.loads(json.dumps(value))
