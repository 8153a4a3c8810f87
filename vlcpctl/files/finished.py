"""Whether the output of a command exists already, or unfinished work of it: by its identity."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import OutputExists
from vlcpctl.files.digests import verify_files
from vlcpctl.files.inputs import converted
from vlcpctl.files.manifest import (
    MANIFESTS,
    identity_differences,
    is_artifact,
    kind_of,
    read_manifest,
    with_article,
)
from vlcpctl.files.outputs import is_free, read_path, refuse_foreign

UNFINISHED = "is an unfinished run of a different command"
_REPLACES = "--force replaces it"


def already_made(out: Path, kind: str, identity: dict[str, Any], *, force: bool) -> bool:
    """Whether the finished output of this very command exists.

    With `force` the answer is False, and `new_directory` will replace it. Raises OutputExists if
    another output is there, one whose files have changed since they were written, or anything
    that is not an artifact (that with `force`, too).
    """
    found = read_path(out)
    is_new = force or is_free(found.resolve())
    refuse_foreign(out, is_artifact, is_file=False, is_read=not is_new)
    if is_new:
        return False
    if kind_of(found) != kind:
        raise OutputExists(
            f"{out} already exists and is not {with_article(kind)}; choose another --out, "
            f"or {_REPLACES}"
        )
    manifest = read_manifest(found, kind)
    refuse_other(out, manifest["identity"], identity)
    place = f"{found / MANIFESTS[kind]}, digests"
    recorded = converted(manifest.get("digests") or {}, dict[str, Any], place)
    verify_files(found, recorded, error=OutputExists, advice=f"; {_REPLACES}")
    return True


def already_written(
    out: Path,
    identity: dict[str, Any],
    is_ours: Callable[[Path], bool],
    identity_of: Callable[[Path], dict[str, Any] | None],
    *,
    force: bool,
) -> bool:
    """Whether the finished file of this very command exists: as `already_made`, for a file.

    `is_ours` recognises a file that may be replaced; `identity_of` reads its identity.
    """
    is_new = force or not out.exists()
    refuse_foreign(out, is_ours, is_file=True, is_read=not is_new)
    if not is_new:
        refuse_other(out, identity_of(out) or {}, identity)
    return not is_new


def refuse_other(
    path: Path,
    found: dict[str, Any],
    wanted: dict[str, Any],
    said: str = "was made with other settings",
    advice: str = _REPLACES,
) -> None:
    """Raise OutputExists, naming the differences, if what is at a path has another identity."""
    differences = identity_differences(found, wanted)
    if differences:
        raise OutputExists(f"{path} {said}: {'; '.join(differences)}; {advice}")
