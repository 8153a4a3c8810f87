"""Manifests: the file that makes a directory an artifact, its identity, and its seal.

The seal is a digest of the other fields, digests of files and content ids among them, so that a
change of any is noticed. It detects accidents, not an attacker who recomputes it.
docs/reference/manifests.md is made from the texts below the fields of `Manifest` and of those that
add to it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import xxhash
from msgspec import Struct

import vlcpctl
from vlcpctl.core.errors import BadInput, missing
from vlcpctl.core.words import utf8_json, without_secrets
from vlcpctl.files.digests import RESTORE
from vlcpctl.files.ids import canonical_json
from vlcpctl.files.inputs import converted, open_regular, read_json
from vlcpctl.files.outputs import read_path

# What an artifact is, and the manifest that makes its directory exist.
MANIFESTS = {
    "stream": "stream.json",
    "task": "task.json",
    "checkpoint": "checkpoint.json",
    "targets": "targets.json",
    "embeddings": "embeddings.json",
    "cached-embeddings": "cached.json",  # embeddings in a cache
    "pseudo-texts": "pseudo-texts.json",
    "report": "summary.json",
    "tables": "tables.json",
    "figures": "figures.json",
    # Hidden: it must not be among the files that a loader of another program finds.
    "export": ".vlcpctl/export.json",
}
SEAL = "seal"  # the field

_UNSEALED = frozenset({SEAL, "schema", "made_by"})  # no reader relies on the other two
# A report, which holds all its numbers, has no seal; version 0.3 gave none to the others.
_MAY_LACK_SEAL = frozenset({"report", "tables", "figures", "embeddings"})
_MOST_BYTES = 1 << 26  # of a manifest: some 100,000 tasks; values take ten times as much memory
_MAJOR = {"report": "[12]"}  # versions that are read; of others 1
_MOST_BYTES_OF_REPORT = 1 << 28
_OF_A_FILE = frozenset({"bytes", "sha256", "xxh3_128"})
_ID = re.compile("[0-9a-f]{32}")
_START = re.compile(rb'\{\s*"schema":\s*"vlcpctl\.')
_MADE_BY = {
    "checkpoint": "'vlcpctl import-checkpoint' makes one of a model of another program",
    "task": "'vlcpctl split' makes tasks of pairs",
    "pseudo-texts": "'vlcpctl invert-texts' makes one",
}


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


_M = TypeVar("_M", bound=Manifest)


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


def seal_of(manifest: Mapping[str, Any]) -> str:
    """The xxh3_128 of the other fields of a manifest as canonical JSON, 32 hex digits."""
    sealed = {name: value for name, value in manifest.items() if name not in _UNSEALED}
    digest = xxhash.xxh3_128()
    for part in _canonical_parts(sealed, 2):  # the fields, and their entries, as of each file
        digest.update(utf8_json(part).encode())  # as it is written
    return digest.hexdigest()


def _canonical_parts(value: object, levels: int) -> Iterator[str]:
    """The canonical JSON of a value in parts: whole, it takes much memory for many files."""
    if levels and isinstance(value, dict) and all(isinstance(name, str) for name in value):
        yield "{"
        for number, name in enumerate(sorted(value)):
            yield f"{',' if number else ''}{canonical_json(name)}:"
            yield from _canonical_parts(value[name], levels - 1)
        yield "}"
    else:
        read_back = json.loads(json.dumps(value))  # text for the keys of objects, lists for tuples
        yield canonical_json(read_back)


def check_seal(place: object, entries: Mapping[str, Any], advice: str = RESTORE) -> None:
    """Raise BadInput, with `place` and the advice, unless the seal fits the other fields."""
    if entries.get(SEAL) != seal_of(entries):
        what = "its seal differs" if SEAL in entries else "it has no seal"
        raise BadInput(f"{place} has changed since it was written: {what}{advice}")


def write_manifest(
    directory: Path, kind: str, identity: Mapping[str, Any], content: str, body: Mapping[str, Any]
) -> None:
    """Write the manifest that makes a directory of this kind exist.

    `identity` is the semantic settings, compared when the command runs again; `content` is the id
    of the data; `body` is what readers need. Who made it and when is added, and is not part of
    any id. Bytes of a path that are not UTF-8 are written as backslash escapes.
    """
    sealed = {"content": content, "identity": identity, **body}
    made_by = {
        "version": vlcpctl.__version__,
        "argv": [without_secrets(word) for word in sys.argv],
        "python": sys.version.split()[0],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    manifest = {"schema": f"vlcpctl.{kind}/1", **sealed, SEAL: seal_of(sealed), "made_by": made_by}
    _write(directory / MANIFESTS[kind], manifest)


def rewrite_manifest(directory: Path, kind: str, manifest: Mapping[str, Any]) -> None:
    """Write all fields of a manifest, with a new seal; who made it and when stays what it was."""
    _write(directory / MANIFESTS[kind], {**manifest, SEAL: seal_of(manifest)})


def _write(path: Path, manifest: Mapping[str, Any]) -> None:
    # In parts, since a manifest may list many files.
    parts = json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(manifest)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(map(utf8_json, parts))
        file.write("\n")


def read_manifest(directory: Path, kind: str) -> dict[str, Any]:
    """The manifest of an artifact as it stands in the file, fields that are not known included.

    Raises BadInput if there is no manifest, it cannot be read, it has changed since it was written,
    or it is of a schema of which this version does not know: any minor version
    (`vlcpctl.task/1.2`) is read.
    """
    path = read_path(directory) / MANIFESTS[kind]
    if not path.is_file():
        raise BadInput(_no_manifest(directory, kind))
    most = _MOST_BYTES_OF_REPORT if kind == "report" else _MOST_BYTES
    entries = read_json(path, most_bytes=most)
    schema = str(entries.get("schema")) if isinstance(entries, dict) else ""
    if not re.fullmatch(rf"vlcpctl\.{kind}/{_MAJOR.get(kind, 1)}(\.\d+)?", schema):
        raise BadInput(f"{path} has schema {schema!r:.80}; this version reads vlcpctl.{kind}/1")
    converted(entries, Manifest, path)
    if SEAL in entries or kind not in _MAY_LACK_SEAL:
        check_seal(path, entries)
    return dict(entries)


def _no_manifest(directory: Path, kind: str) -> str:
    """The message for a path that is not an artifact of this kind."""
    maker = f"; {_MADE_BY[kind]}" if kind in _MADE_BY else ""
    if not read_path(directory).exists():
        of_a_hub = ":" in str(directory) or not directory.parent.exists()
        return missing(directory) + (maker if of_a_hub else "")
    found = kind_of(directory)
    said = f"{directory} is not {with_article(kind)}: it has no {MANIFESTS[kind]}"
    return said + (f"; it is {with_article(found)}" if found else maker)


def manifest_as(directory: Path, kind: str, fields: type[_M]) -> _M:
    """The manifest of an artifact, as these fields; `id` is also there if the file lacks it.

    Raises BadInput as `read_manifest` does, and if a field is missing or of another type.
    """
    entries, place = read_manifest(directory, kind), directory / MANIFESTS[kind]
    return converted({**entries, "id": birth_id(entries, place)}, fields, place)


def content_of(directory: Path, kind: str) -> str:
    """The content id of an artifact. Raises BadInput if the directory is not one of this kind."""
    return str(read_manifest(directory, kind)["content"])


def kind_of(directory: Path) -> str | None:
    """Which artifact a directory is by the name of its manifest, or None."""
    place = read_path(directory)
    return next((kind for kind, name in MANIFESTS.items() if (place / name).is_file()), None)


def is_artifact(directory: Path) -> bool:
    """Whether a directory has a manifest that vlcpctl wrote; its name alone is not enough."""
    for name in MANIFESTS.values():
        path = directory / name
        with suppress(BadInput, OSError):
            if path.is_file():
                with open_regular(path) as file:
                    if _START.match(file.read(100)):
                        return True
    return False


def with_article(kind: str) -> str:
    """A kind of artifact in words.

    >>> with_article("task"), with_article("targets")
    ('a task', 'a directory of targets')
    """
    if kind in {"targets", "embeddings", "pseudo-texts", "tables", "figures"}:
        return f"a directory of {kind.replace('-', ' ')}"
    return f"an {kind}" if kind.startswith("e") else f"a {kind}"


def identity_differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The differences between two identities, a phrase for each, sorted by dotted name.

    Of files and ids, whose digests say nothing to people, it is that they differ.

    >>> identity_differences({"settings": {"lr": 0.1, "eps": 0}}, {"settings": {"lr": 1, "eps": 0}})
    ['settings.lr was 0.1 and is now 1']
    >>> one, other = ({"a.csv": {"bytes": n, "sha256": str(n) * 64}} for n in (1, 2))
    >>> identity_differences(one, other | {"tasks": ["3" * 32]})
    ['a.csv has other content', 'tasks is new']
    """
    there, here = dict(leaves(found)), dict(leaves(wanted))
    pairs = [(name, there.get(name), here.get(name)) for name in sorted(there | here)]
    return list(dict.fromkeys(_difference(*one) for one in pairs if one[1] != one[2]))


def _difference(name: str, was: Any, now: Any) -> str:
    parent, _, leaf = name.rpartition(".")
    is_of_file = leaf in _OF_A_FILE
    if not is_of_file and _ID.search(f"{was} {now}") is None:
        values = ("not set" if one is None else repr(one) for one in (was, now))
        return "{} was {} and is now {}".format(name, *values)
    how = "is new" if was is None else "is gone" if now is None else "has other content"
    return f"{parent if is_of_file else name} {how}"


def leaves(values: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted name, as they read back from JSON.

    An identity on disk has lists where one in memory has tuples; that is not a difference.
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", json.loads(json.dumps(value))
