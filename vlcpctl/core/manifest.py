"""Manifests: the file that makes a directory an artifact, and its identity."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import vlcpctl
from vlcpctl.core.errors import BadInput
from vlcpctl.core.staging import read_path

# What an artifact is, and the manifest that makes its directory exist.
MANIFESTS = {
    "stream": "stream.json",
    "task": "task.json",
    "checkpoint": "checkpoint.json",
    "targets": "targets.json",
    "embeddings": "embeddings.json",
    "report": "summary.json",
}


def write_manifest(
    directory: Path, kind: str, identity: dict[str, Any], content: str, body: dict[str, Any]
) -> None:
    """Write the manifest that makes a directory of this kind exist.

    `identity` is the semantic settings, compared when the command runs again; `content` is the id
    of the data; `body` is what readers need. Who made it and when is added, and is in no id.
    """
    manifest = {
        "schema": f"vlcpctl.{kind}/1",
        "content": content,
        "identity": identity,
        **body,
        "made_by": {
            "version": vlcpctl.__version__,
            "argv": sys.argv,
            "python": sys.version.split()[0],
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    path = directory / MANIFESTS[kind]
    path.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_manifest(directory: Path, kind: str) -> dict[str, Any]:
    """The manifest of an artifact. Raises BadInput if there is none, or one of another schema."""
    path = read_path(directory) / MANIFESTS[kind]
    if not path.is_file():
        if not read_path(directory).exists():
            raise BadInput(f"{directory} does not exist")
        raise BadInput(
            f"{directory} is not {with_article(kind)}: it has no {MANIFESTS[kind]}"
            f"{_described(directory)}"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} is not readable JSON: {error}") from error
    if not isinstance(manifest, dict) or "schema" not in manifest:
        raise BadInput(f"{path} has no schema; it was not written by vlcpctl")
    if manifest["schema"] != f"vlcpctl.{kind}/1":
        raise BadInput(
            f"{path} has schema {manifest['schema']!r}; this version reads vlcpctl.{kind}/1"
        )
    manifest = _Manifest(path, manifest)
    for name in ("content", "identity"):
        _ = manifest[name]  # raises BadInput if it is missing
    return manifest


def content_of(directory: Path, kind: str) -> str:
    """The content id of an artifact. Raises BadInput if the directory is not one of this kind."""
    return str(read_manifest(directory, kind)["content"])


class _Manifest(dict[str, Any]):
    """A manifest whose error for a missing entry names the file."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise BadInput(f"{self._path} has no {name!r}: it was changed after it was written")


def kind_of(directory: Path) -> str | None:
    """Which artifact a directory is by the name of its manifest, or None."""
    place = read_path(directory)
    return next((kind for kind, name in MANIFESTS.items() if (place / name).is_file()), None)


def is_artifact(directory: Path) -> bool:
    """Whether a directory has a manifest that vlcpctl wrote; its name alone is not enough."""
    for name in MANIFESTS.values():
        try:
            manifest = json.loads((directory / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(manifest, dict) and str(manifest.get("schema")).startswith("vlcpctl."):
            return True
    return False


def with_article(kind: str) -> str:
    """A kind of artifact in words.

    >>> with_article("task"), with_article("targets")
    ('a task', 'a directory of targets')
    """
    return "a directory of targets" if kind == "targets" else f"a {kind}"


def _described(directory: Path) -> str:
    kind = kind_of(directory)
    return f" (it is {with_article(kind)})" if kind else ""


def identity_differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """The differences between two identities, one phrase per value, sorted by dotted name.

    >>> identity_differences({"seed": 0}, {"seed": 1})
    ['seed was 0 and is now 1']
    >>> identity_differences({"settings": {"lr": 0.1, "eps": 0}}, {"settings": {"lr": 1, "eps": 0}})
    ['settings.lr was 0.1 and is now 1']
    """
    there, here = dict(_leaves(found)), dict(_leaves(wanted))
    return [
        f"{name} was {_shown(there.get(name))} and is now {_shown(here.get(name))}"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)


def _leaves(values: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted name, as they read back from JSON.

    An identity on disk has lists where one in memory has tuples; that is not a difference.
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", json.loads(json.dumps(value))
