"""Delete an exported data set, but no file that somebody else put into it or wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from vlcpctl.core.console import say
from vlcpctl.core.digests import FileDigest, digests_of
from vlcpctl.core.errors import some_names
from vlcpctl.core.manifest import read_manifest
from vlcpctl.core.shown_paths import Shown
from vlcpctl.core.staging import Staging, sync
from vlcpctl.core.structs import converted
from vlcpctl.data.classification.class_folder import TEMPLATES
from vlcpctl.data.tasks.exported import CARD, KIND, MANIFEST, ExportManifest

# Files without anything of a pair, which people edit. All others go even if they were changed.
_EDITED = (CARD, TEMPLATES)
_HIDDEN = MANIFEST.partition("/")[0]  # the directory with the manifest, which is all ours


def delete_export(directory: Path, observe: Callable[[str], None], shown: Shown) -> None:
    """Delete a data set, in the holder of its lock; files that were added or edited stay.

    With such files, the hidden directory with the manifest and the list of pairs goes last and at
    once: after a kill, the same command finds the data set again. Raises BadInput if the manifest
    cannot be read, and OSError if a file cannot be deleted. `shown` gives the text of a path.
    """
    files = _files_in(directory)
    left = _left(directory, files)
    if not left:
        Staging(directory).delete_output()
        say(f"deleted {shown(directory)}; export it again from its tasks")
        return
    gone = sorted(name for name in files - left if not name.startswith(f"{_HIDDEN}/"))
    for name in gone:
        observe(f"deleting {name}")
        (directory / name).unlink()
    _sync_without_empty(directory, gone)
    observe(f"emptied {directory.name}")
    Staging(directory).delete_output(_HIDDEN)
    names, place = some_names(sorted(left)), shown(directory)
    say(f"deleted the data set in {place}; left files that were added or changed: {names}")


def _files_in(directory: Path) -> set[str]:
    """The relative paths of all files and symbolic links."""
    found = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(directory).as_posix() for path in found}


def _left(directory: Path, files: set[str]) -> set[str]:
    """The files that the export did not write, or that hold no pairs and were edited since."""
    manifest = converted(read_manifest(directory, KIND), ExportManifest, directory / MANIFEST)
    digests = manifest.digests
    recorded = {**digests, CARD: manifest.card}
    edited = {
        name
        for name in _EDITED
        if name in files and _is_changed(directory, name, recorded.get(name))
    }
    added = {name for name in files if not name.startswith(f"{_HIDDEN}/")} - {*digests, CARD}
    return added | edited


def _is_changed(directory: Path, name: str, recorded: FileDigest | None) -> bool:
    if recorded is None or not (directory / name).is_file() or (directory / name).is_symlink():
        return True
    return digests_of(directory, [name])[name] != recorded


def _sync_without_empty(directory: Path, gone: Iterable[str]) -> None:
    """Have deletions on the disk, and delete the folders that they left empty."""
    folders = {folder for name in gone for folder in (directory / name).parents}
    inside = {folder for folder in folders if directory in folder.parents}
    for folder in sorted(inside, key=lambda one: -len(one.parts)):
        sync(folder)
        if not any(folder.iterdir()):
            folder.rmdir()
    sync(directory)
