"""The files of a finished artifact, verified against what its manifest records of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from vlcpctl.core.errors import VlcpError
from vlcpctl.files.digests import FileDigest, unlisted_files, verify_files
from vlcpctl.files.manifest import MANIFESTS, read_manifest
from vlcpctl.files.structs import converted

RESTORE = "; restore it, or make it again"


class _Recorded(Struct):
    digests: dict[str, FileDigest]


IsWanted = Callable[[str], bool]  # called with a relative path


def verify_recorded(
    directory: Path, kind: str, is_wanted: IsWanted, is_read: IsWanted, error: type[VlcpError]
) -> None:
    """Raise `error`, naming the file, if one that `is_wanted` is not what the manifest records.

    Also raises it for a file that exists and `is_read`, but that the manifest does not record, and
    BadInput if the manifest of the artifact, of this kind, cannot be read, or records no files.
    """
    place = directory / MANIFESTS[kind]
    recorded = converted(read_manifest(directory, kind), _Recorded, place).digests
    wanted = {name: entry for name, entry in recorded.items() if is_wanted(name)}
    verify_files(directory, wanted, error=error, advice=RESTORE)
    for name in unlisted_files(directory, recorded):
        if is_read(name):
            raise error(f"{directory / name} was added after the manifest was written; remove it")
