"""The files of a finished artifact, verified against what its manifest records of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vlcpctl.core.digests import FileDigest, unlisted_files, verify_files
from vlcpctl.core.errors import BadInput, VlcpError
from vlcpctl.core.manifest import MANIFESTS, read_manifest

RESTORE = "; restore it, or make it again"

IsWanted = Callable[[str], bool]  # called with a relative path


def recorded_files(place: object, manifest: Mapping[str, Any]) -> dict[str, FileDigest]:
    """What a manifest records of each file, by relative path; `place` is the manifest's file.

    Raises BadInput if it records nothing.
    """
    digests = manifest.get("digests")
    if isinstance(digests, dict):
        return digests
    raise BadInput(f"{place} does not record the digests of its files{RESTORE}")


def verify_recorded(
    directory: Path, kind: str, is_wanted: IsWanted, is_read: IsWanted, error: type[VlcpError]
) -> None:
    """Raise `error`, naming the file, if one that `is_wanted` is not what the manifest records.

    Also raises it for a file that exists and `is_read`, but that the manifest does not record, and
    BadInput if the manifest of the artifact, of this kind, cannot be read.
    """
    recorded = recorded_files(directory / MANIFESTS[kind], read_manifest(directory, kind))
    wanted = {name: entry for name, entry in recorded.items() if is_wanted(name)}
    verify_files(directory, wanted, error=error, advice=RESTORE)
    for name in unlisted_files(directory, recorded):
        if is_read(name):
            raise error(f"{directory / name} was added after the manifest was written; remove it")
