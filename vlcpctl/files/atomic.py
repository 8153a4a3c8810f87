"""Outputs that are whole or absent: written in a staging directory, manifest last, then renamed.

An output that is not a result of vlcpctl is never replaced, with --force or without.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vlcpctl.core.console import say
from vlcpctl.core.ending import at_signal
from vlcpctl.core.errors import OutputExists, UsageError
from vlcpctl.core.words import as_word
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
from vlcpctl.files.staging import Staging, is_free, read_path, sync, sync_tree, unfinished

_OTHER = "was made with other settings"
REPLACES = "--force replaces it"
_UNFINISHED = "is an unfinished run of a different command"
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def new_directory(final: Path, manifest: str) -> Iterator[Path]:
    """A fresh directory that is renamed to `final` when the block ends without an error.

    The block writes every file and, last, the manifest (see `write_manifest`). An artifact that
    stood at `final` is kept in the staging directory; an empty directory is replaced. Raises
    UsageError or OutputExists if `final` may not be written to.
    """
    check_output_path(final)
    refuse_foreign_directory(final)
    refuse_link(final)
    with _directory(final) as (staging, temporary):
        yield temporary
        assert (temporary / manifest).is_file(), f"{temporary} has no {manifest}"
        refuse_foreign_directory(final)  # it may have come while this one was written
        refuse_link(final)
        sync_tree(temporary)
        _report_kept(final, staging.swap_in(temporary))


@contextmanager
def rewritten_directory(final: Path) -> Iterator[Path]:
    """A fresh directory that takes the place of the artifact at `final`, which is deleted for good.

    As `new_directory`, but nothing is kept. The block writes all files.
    """
    with _directory(final) as (staging, temporary):
        yield temporary
        sync_tree(temporary)
        staging.swap_in(temporary, keeps=False)


@contextmanager
def _directory(final: Path) -> Iterator[tuple[Staging, Path]]:
    staging = Staging(final)
    with naming_output(final), staging.locked():
        if not is_free(staging.output):
            staging.refuse_layer()
        try:
            staging.writing.mkdir()
            yield staging, staging.writing
        finally:
            shutil.rmtree(staging.writing, ignore_errors=True)


@contextmanager
def new_file(
    final: Path, is_ours: Callable[[Path], bool], *, keeps_replaced: bool = True
) -> Iterator[Path]:
    """A path to write to, which is renamed to `final` when the block ends without an error.

    A file at `final` that `is_ours` recognises, or an empty one, is kept in the staging directory,
    unless `keeps_replaced` is False; any other is refused with OutputExists. A pipe or a device is
    written to as it is.
    """
    if is_pipe_or_device(final):
        with naming_output(final):
            yield final
        return
    check_output_path(final)
    refuse_foreign_file(final, is_ours)
    refuse_link(final)
    with _file(final) as (staging, temporary):
        yield temporary
        refuse_foreign_file(final, is_ours)
        refuse_link(final)
        kept = None
        if keeps_replaced and final.exists() and final.stat().st_size:
            kept = staging.keep_file()
        _put(temporary, staging.output)
        _report_kept(final, kept)


@contextmanager
def rewritten_file(final: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of the file at `final`; nothing is kept of that."""
    with _file(final) as (staging, temporary):
        yield temporary
        _put(temporary, staging.output)


@contextmanager
def _file(final: Path) -> Iterator[tuple[Staging, Path]]:
    staging = Staging(final)
    with naming_output(final), staging.locked():
        try:
            yield staging, staging.writing
        finally:
            staging.writing.unlink(missing_ok=True)


@contextmanager
def new_part(final: Path) -> Iterator[Path]:
    """A path to write to, renamed to `final` at the end: for files inside a directory of ours."""
    temporary = unfinished(final)

    def discard() -> None:
        temporary.unlink(missing_ok=True)

    with naming_output(final), at_signal(discard):
        try:
            yield temporary
            _put(temporary, final)
        finally:
            discard()


def already_made(
    out: Path,
    kind: str,
    identity: dict[str, Any],
    *,
    force: bool,
) -> bool:
    """Whether the finished output of this very command exists.

    With `force` the answer is False, and `new_directory` will replace it. Raises OutputExists if
    another output is there, one whose files have changed since they were written, or anything
    that is not an artifact (that with `force`, too).
    """
    check_output_path(out)
    refuse_foreign_directory(out)
    found = read_path(out)
    if force or is_free(found.resolve()):
        refuse_link(out)
        return False
    if kind_of(found) != kind:
        raise OutputExists(
            f"{out} already exists and is not {with_article(kind)}; choose another --out, "
            "or --force to replace it"
        )
    manifest = read_manifest(found, kind)
    refuse_other(out, manifest["identity"], identity)
    place = f"{found / MANIFESTS[kind]}, digests"
    recorded = converted(manifest.get("digests") or {}, dict[str, Any], place)
    verify_files(found, recorded, error=OutputExists, advice=f"; {REPLACES}")
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
    check_output_path(out)
    refuse_foreign_file(out, is_ours)
    if force or not out.exists():
        refuse_link(out)
        return False
    refuse_other(out, identity_of(out) or {}, identity)
    return True


def refuse_other(out: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise OutputExists, naming the differences, if a finished output has another identity."""
    differences = identity_differences(found, wanted)
    if differences:
        raise OutputExists(f"{out} {_OTHER}: {'; '.join(differences)}; {REPLACES}")


def refuse_unfinished(
    partial: Path, found: dict[str, Any], wanted: dict[str, Any], advice: str = REPLACES
) -> None:
    """Raise OutputExists, naming the differences, if unfinished work has another identity."""
    differences = identity_differences(found, wanted)
    if differences:
        raise OutputExists(f"{partial} {_UNFINISHED}: {'; '.join(differences)}; {advice}")


def check_output_path(out: Path, inputs: Iterable[Path] = (), option: str = "--out") -> None:
    """Refuse with UsageError a place, the value of `option`, where no output may be made.

    These are `-` (stdout), pipes and devices, dangling links, the home and the current directory,
    every directory above them, and a directory that is or contains one of `inputs`.
    """
    if out == Path("-"):
        raise UsageError("'-' is stdout, to which this result cannot be written; give a path")
    if is_pipe_or_device(out):
        raise UsageError(f"{out} is a pipe or device; give the path of a new file or directory")
    if out.is_symlink() and not out.exists():
        raise UsageError(f"{out} is a broken symbolic link; remove it, or choose another {option}")
    real = Path(os.path.realpath(out))
    for name, place in (("current", Path.cwd()), ("home", Path("~").expanduser())):
        if _contains(real, place):
            raise UsageError(
                f"the output {out} is the {name} directory or contains it; give the path of a new "
                "directory or file (an unset shell variable gives an empty path)"
            )
    for given in inputs:
        if _contains(real, given):
            is_same = real == Path(os.path.realpath(given))
            what = "is also an input" if is_same else f"contains the input {given}"
            raise UsageError(f"the output {out} {what}; choose another {option}")


def refuse_link(out: Path) -> None:
    """Raise OutputExists for a place that an output cannot take: a symbolic link or a mount point.

    What a link leads to is not what was named, and may be shared; nothing can be renamed to a
    mount point.
    """
    if out.is_symlink():
        raise OutputExists(
            f"{out} is a symbolic link, and an output replaces neither a link nor what it leads "
            f"to; remove the link, or give {as_word(os.path.realpath(out))}"
        )
    if os.path.ismount(out):
        which = f"a path in it, such as {out / 'out'}" if out.is_dir() else "another --out"
        raise OutputExists(f"{out} is a mount point, which cannot be replaced; choose {which}")


def refuse_foreign_file(out: Path, is_ours: Callable[[Path], bool]) -> None:
    """Raise OutputExists unless a file may be written at `out`: none is there, or one of ours."""
    if out.is_dir():
        raise OutputExists(
            f"{out} is a directory, and this command writes a file; choose another --out"
        )
    if out.exists() and out.stat().st_size and not is_ours(out):
        raise OutputExists(
            f"{out} already exists and was not written by this command; choose another --out"
        )


def refuse_foreign_directory(out: Path) -> None:
    """Raise OutputExists unless a directory may be written at `out`: it is free, or an artifact."""
    if is_free(Path(os.path.realpath(out))):
        return
    if not out.is_dir():
        raise OutputExists(
            f"{out} is a file, and this command writes a directory; choose another --out"
        )
    if not is_artifact(out):
        raise OutputExists(
            f"{out} already exists and is not a result of vlcpctl; choose another --out"
        )


def is_pipe_or_device(path: Path) -> bool:
    """Whether a path is a pipe or device, which is written to directly and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def naming_output(output: Path) -> Iterator[None]:
    """Name the output in the error of a full disk, which names no file by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_FULL:
            error.filename = str(output)
        raise


def _put(written: Path, final: Path) -> None:
    sync(written)
    written.replace(final)
    sync(final.parent)


def _report_kept(out: Path, kept: Path | None) -> None:
    if kept is not None:
        shown = kept if out.is_absolute() else Path(os.path.relpath(kept))
        say(f"replaced {out}; the previous output is kept in {shown} until the next --force")


def _contains(directory: Path, path: Path) -> bool:
    real = Path(os.path.realpath(path))
    return directory == real or directory in real.parents
