"""The seal of a manifest: a digest of its own fields, so that a change of any of them is noticed.

Digests of files and content ids are fields too. The seal detects accidents, not an
attacker who recomputes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from vlcpctl.core.errors import BadInput
from vlcpctl.core.printable import utf8_json
from vlcpctl.files.hashing import canonical_json
from vlcpctl.files.manifest import MANIFESTS, Manifest, birth_id, read_manifest, write_manifest
from vlcpctl.files.recorded_files import RESTORE
from vlcpctl.files.structs import converted

SEAL = "seal"  # the field
_M = TypeVar("_M", bound=Manifest)
_UNSEALED = frozenset({SEAL, "schema", "made_by"})  # no reader relies on the other two
_IN_PARTS = 2  # levels: the fields, and their entries such as one for each file


def seal_of(manifest: Mapping[str, Any]) -> str:
    """The xxh3_128 of a manifest's fields as JSON, 32 hex digits."""
    sealed = {name: value for name, value in manifest.items() if name not in _UNSEALED}
    digest = xxhash.xxh3_128()
    for part in _canonical_parts(sealed, _IN_PARTS):
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


def broken_seal(place: object, manifest: Mapping[str, Any]) -> str | None:
    """A phrase if the seal is missing or does not fit the other fields.

    `place` is the manifest's file.
    """
    if SEAL not in manifest:
        return f"{place} has no {SEAL}: it was made by an unpublished version, or has changed"
    if manifest[SEAL] == seal_of(manifest):
        return None
    return f"{place} has changed since it was written: its {SEAL} differs"


def read_sealed(directory: Path, kind: str, fields: type[_M]) -> _M:
    """The manifest of an artifact, as these fields; `id` is also there if the file lacks it.

    Raises BadInput as `sealed_entries` does, and if a field is missing or of another type.
    """
    entries, place = sealed_entries(directory, kind), directory / MANIFESTS[kind]
    return converted({**entries, "id": birth_id(entries, place)}, fields, place)


def sealed_entries(directory: Path, kind: str) -> dict[str, Any]:
    """The manifest of an artifact as it stands in the file, fields that are not known included.

    Raises BadInput if there is none, or it has changed since it was written.
    """
    entries = read_manifest(directory, kind)
    broken = broken_seal(directory / MANIFESTS[kind], entries)
    if broken is not None:
        raise BadInput(broken + RESTORE)
    return entries


def write_sealed_manifest(
    directory: Path, kind: str, identity: dict[str, Any], content: str, body: dict[str, Any]
) -> None:
    """Write a manifest with its seal; see `write_manifest`."""
    seal = seal_of({"content": content, "identity": identity, **body})
    write_manifest(directory, kind, identity, content, {**body, SEAL: seal})


def rewrite_sealed_manifest(directory: Path, kind: str, manifest: Mapping[str, Any]) -> None:
    """Write all fields of a manifest, with a new seal; who made it and when stays what it was."""
    sealed = {**manifest, SEAL: seal_of(manifest)}
    text = json.dumps(sealed, indent=1, ensure_ascii=False) + "\n"
    (directory / MANIFESTS[kind]).write_text(text, encoding="utf-8")
