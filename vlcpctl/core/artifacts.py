"""Files and directories that are whole or absent: written aside, manifest last, then renamed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import vlcpctl
from vlcpctl.core.differences import identity_differences
from vlcpctl.core.errors import BadInput, OutputExists, UsageError

# What an artifact is, and the manifest that makes its directory exist.
MANIFESTS = {
    "stream": "stream.json",
    "task": "task.json",
    "checkpoint": "checkpoint.json",
    "targets": "targets.json",
    "embeddings": "embeddings.json",
    "report": "summary.json",
}

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def new_directory(final: Path, manifest: str) -> Iterator[Path]:
    """A fresh directory beside `final`; renamed to it when the block ends without an error.

    The block writes every file and, last, the manifest (see `write_manifest`).
    What stood at `final` before is moved to `NAME.old`.
    """
    check_place(final)
    final = Path(os.path.abspath(final))
    final.parent.mkdir(parents=True, exist_ok=True)
    _clean_stale(final)
    temporary = final.with_name(f".{final.name}.tmp-{socket.gethostname()}-{os.getpid()}")
    temporary.mkdir()
    try:
        with naming(final):
            yield temporary
            publish(temporary, final, manifest)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def publish(temporary: Path, final: Path, manifest: str) -> None:
    """Put a complete directory in its place; a kill at any point leaves the old or the new one."""
    assert (temporary / manifest).is_file(), f"{temporary} has no {manifest}"
    _sync_tree(temporary)
    ready = _ready_name(final)
    if ready.exists():
        shutil.rmtree(ready)
    temporary.rename(ready)
    if final.exists():
        move_aside(final)
    ready.rename(final)
    _sync(final.parent)


def finish_swap(final: Path) -> None:
    """Complete a swap killed half-way: the new directory stands ready, the place is empty."""
    ready = _ready_name(final)
    if ready.exists() and not final.exists():
        ready.rename(final)


def move_aside(path: Path) -> Path:
    """Rename to NAME.old, replacing what was there."""
    old = path.with_name(path.name + ".old")
    if old.is_dir():
        shutil.rmtree(old)
    elif old.exists():
        old.unlink()
    path.rename(old)
    return old


@contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """A path beside `final` to write to; renamed over it when the block ends without an error.

    A pipe or a device is written to as it is.
    """
    if is_pipe_or_device(final):
        with naming(final):
            yield final
        return
    check_place(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    try:
        with naming(final):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(final)
            _sync(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def check_place(out: Path) -> None:
    """Refuse where no file or directory can be made: `-`, which is stdout, pipes and devices."""
    if out == Path("-"):
        raise UsageError("'-' is stdout, where this result cannot go: give a path, as in -o NAME")
    if is_pipe_or_device(out):
        raise UsageError(f"{out} is a pipe or device, where this result cannot go: give a new path")


def is_pipe_or_device(path: Path) -> bool:
    """Whether a path takes what is written and keeps nothing, so that it is never moved."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def naming(output: Path) -> Iterator[None]:
    """Say what was being written when the disk is full: writing names no file by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_FULL:
            error.filename = str(output)
        raise


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
    """The manifest of an artifact; an error that names the path when it is not one."""
    finish_swap(directory)
    path = directory / MANIFESTS[kind]
    if not path.is_file():
        raise BadInput(
            f"{directory} is not a {kind}: it has no {MANIFESTS[kind]}{_what_it_is(directory)}"
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
        _ = manifest[name]  # that it is there
    return manifest


class _Manifest(dict[str, Any]):
    """A manifest that names its file when it is asked for what it should have and has not."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise BadInput(f"{self._path} has no {name!r}: it was changed after it was written")


def kind_of(directory: Path) -> str | None:
    """Which artifact a directory is, or None."""
    finish_swap(directory)
    return next((kind for kind, name in MANIFESTS.items() if (directory / name).is_file()), None)


def already_made(out: Path, kind: str, identity: dict[str, Any], *, force: bool) -> bool:
    """Whether the finished output of this very command is there; another one there is an error.

    With `force` the answer is False; publishing the new output moves the old one aside.
    """
    check_place(out)
    finish_swap(out)
    if not out.exists() or force:
        return False
    if kind_of(out) != kind:
        raise OutputExists(
            f"{out} exists and is not a {kind}; choose another --out, or --force to move it aside"
        )
    found = read_manifest(out, kind)["identity"]
    differences = identity_differences(found, identity)
    if differences:
        raise OutputExists(
            f"{out} was made with other settings: {'; '.join(differences)}; --force replaces it"
        )
    return True


def _what_it_is(directory: Path) -> str:
    if not directory.exists():
        return " (there is no such path)"
    kind = kind_of(directory)
    return f" (it is a {kind})" if kind else ""


def _ready_name(final: Path) -> Path:
    final = Path(os.path.abspath(final))  # . has no name, and / has none either way
    return final.parent / f".{final.name}.new"


def _clean_stale(final: Path) -> None:
    """Remove what a dead process of this machine left behind."""
    prefix = f".{final.name}.tmp-{socket.gethostname()}-"
    for path in final.parent.glob(f".{_glob_escaped(final.name)}.tmp-*"):
        pid = path.name.removeprefix(prefix)
        if path.name.startswith(prefix) and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _glob_escaped(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_tree(directory: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    # A disk serves many requests at once faster than one after the other.
    with ThreadPoolExecutor(8) as threads:
        for synced in [threads.submit(_sync, path) for path in (directory, *directory.rglob("*"))]:
            synced.result()


def _sync(path: Path) -> None:
    """Wait until a file or a directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
