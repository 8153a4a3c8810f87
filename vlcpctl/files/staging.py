"""The staging directory of an output: what is being written, and what a new output replaced.

.NAME.vlcpctl/made-by-vlcpctl       the marker; a directory without it is never touched. Writers of
                                    the output lock it, and record their process on its last line
.NAME.vlcpctl/part-I-of-N           locked by a process that computes a part of the output
.NAME.vlcpctl/writing-HOST-PID      what a process is writing, a file or a directory
.NAME.vlcpctl/ready/NAME            complete, and about to take the place of NAME
.NAME.vlcpctl/replaced/NAME         what --force replaced last
.NAME.vlcpctl/partial/              the state of unfinished work, from which it resumes

It is beside the output, so that a rename never crosses a file system, and hidden, so that globs
such as `weeks/*/` do not see it. A directory that is changed in place, and that may be a mounted
volume, has it inside instead: NAME/.vlcpctl. Nothing outside of it is ever moved or removed except
the output itself. The last of its writers removes the directory unless something is kept in it.

A new file takes the name of an old one in one `rename`. A new directory exchanges names with the
old one where the system can do that, as Linux can on local disks. Elsewhere a kill between two
renames leaves the new one in `ready`, and the next reader or writer puts it in its place.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

from vlcpctl.core.ending import at_signal
from vlcpctl.core.errors import OutputExists
from vlcpctl.files.locks import HeldLock, acquire

_MARKER = "made-by-vlcpctl"
_MARKER_TEXT = """\
vlcpctl stores unfinished outputs here, and the previous output that --force replaced.
This directory may be removed when no vlcpctl command is running.
"""
_NAME = re.compile(r"\.(.+)\.vlcpctl", re.DOTALL)
_INSIDE = ".vlcpctl"
_TRIES = 100
# How a file system, a container or an old kernel says that it cannot exchange names.
_CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.ENOTSUP, errno.EPERM})
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of linux/fcntl.h and linux/fs.h
_MOST_CLONED = 1 << 30  # bytes of one call


@final
class Staging:
    """The staging directory of one output. It need not exist: `locked` creates it.

    It is beside the output or, with `inside`, in the directory that the output is. All paths that
    lead to an output have the same one.
    """

    def __init__(self, output: Path, *, inside: bool = False) -> None:
        self.output = Path(os.path.realpath(output)) if inside else place_of(output)
        hidden = self.output.with_name(f".{self.output.name}.vlcpctl")
        self.path = self.output / _INSIDE if inside else hidden
        self.marker = self.path / _MARKER
        self.ready = self.path / "ready" / self.output.name
        self.replaced = self.path / "replaced" / self.output.name
        self.partial = self.path / "partial"
        self.writing = self.path / f"writing-{socket.gethostname()}-{os.getpid()}"
        self._replaced_by_this = self.path / f"{self.writing.name}-old"

    @contextmanager
    def locked(self, *, wait_s: float | None = None) -> Iterator[None]:
        """Hold the lock of the output within the block; a process can do so again inside it.

        What dead writers left is removed or completed first: no other writer is alive. Waits as
        `locks.acquire` does. Raises OutputExists if another process writes the output, or if the
        directory was not made by vlcpctl, and OSError where it cannot be made.
        """
        with self._locked(shared=False, wait_s=wait_s):
            yield

    @contextmanager
    def locked_part(self, part: str, *, wait_s: float | None = None) -> Iterator[None]:
        """Hold the lock of one part of the output, of which others may be computed meanwhile.

        Raises as `locked` does: no other process may be writing the output or this part of it.
        """
        file = self.path / f"part-{part}"
        with self._locked(shared=True, wait_s=wait_s):
            lock = acquire(file, lambda: _open_to_lock(file), self.output, wait_s=wait_s)
            lock.write_holder("")

            def leave() -> None:
                if lock.uses == 1:
                    file.unlink(missing_ok=True)
                lock.release()

            with at_signal(leave):
                try:
                    yield
                finally:
                    leave()

    @contextmanager
    def _locked(self, *, shared: bool, wait_s: float | None) -> Iterator[None]:
        new_parents = [path for path in self.path.parents if not path.exists()]
        lock = acquire(
            self.marker,
            self._open_marker,
            self.output,
            shared=shared,
            wait_s=wait_s,
            parts=lambda: _matching(self.path, "part-*"),
        )
        with at_signal(lambda: self._leave(lock, new_parents)):
            try:
                if lock.uses == 1:
                    lock.write_holder(_MARKER_TEXT)
                    if not shared:
                        self._tidy(lock)
                yield
            finally:
                self._leave(lock, new_parents)

    def _leave(self, lock: HeldLock, new_parents: list[Path]) -> None:
        if lock.uses == 1 and (lock.is_exclusive() or not lock.is_real):
            self._tidy(lock)
            self.close()
        lock.release()
        with suppress(OSError):  # not empty, or there is none
            for parent in new_parents:
                parent.rmdir()

    def _tidy(self, lock: HeldLock) -> None:
        """Complete a swap that was killed half-way; remove what dead writers were writing."""
        if not os.path.lexists(self.output):
            with suppress(FileNotFoundError):
                self.ready.rename(self.output)
        if not lock.is_real:
            return  # another writer may be alive
        _remove(self.ready)
        for path in [*_matching(self.path, "writing-*"), *_matching(self.path, "part-*")]:
            _remove(path)
        for path in _matching(self.partial, ".*.tmp-*"):
            _remove(path)

    def open_partial(self) -> Path:
        """Make the directory for the state of unfinished work. Raises as `locked` does."""
        with self.locked():
            self.partial.mkdir(exist_ok=True)
        return self.partial

    def drop_partial(self) -> None:
        """Remove the state of work that is finished or starts over."""
        if self.is_ours():
            with self.locked():
                _remove(self.partial)

    def is_ours(self) -> bool:
        """Whether the directory exists and vlcpctl made it."""
        return self.marker.is_file()

    def swap_in(self, written: Path, *, keeps: bool = True) -> Path | None:
        """Put a complete directory in the output's place; returns where the old one is kept.

        Without `keeps` the old one is deleted for good. A kill at any point leaves the old or the
        new one, at its place or in `ready`, and an old one that is kept in `replaced`. Raises
        OSError if the old one cannot be deleted.
        """
        if is_free(self.output):
            written.rename(self.output)  # also over an empty directory, at once
            sync(self.output.parent)
            return None
        # The new one goes where the old one is to be, so that one exchange does all.
        old = self.replaced if keeps else self._replaced_by_this
        _remove(old)
        old.parent.mkdir(exist_ok=True)
        written.rename(old)
        if not _exchange(old, self.output):
            _remove(self.ready)
            self.ready.parent.mkdir(exist_ok=True)
            old.rename(self.ready)
            self.output.rename(old)
            self.ready.rename(self.output)
        sync(self.output.parent)
        if keeps:
            return old
        delete(old)
        return None

    def refuse_layer(self) -> None:
        """Raise OutputExists for an old directory that the system does not let anybody rename.

        In a container, directories of the image are so. Only for the holder of the lock.
        """
        try:
            self.output.rename(self.path)  # fails: the marker is in it
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise OutputExists(
                    f"{self.output} is part of a container's image, of which no directory can be "
                    "replaced; write to a volume"
                ) from None

    def delete_output(self) -> None:
        """Delete the output for good, in the holder of its lock.

        A kill at any point leaves it whole, or what the next writer deletes. Raises OSError if it
        cannot be deleted.
        """
        self.output.rename(self._replaced_by_this)
        sync(self.output.parent)
        delete(self._replaced_by_this)

    def keep(self, path: Path) -> Path:
        """Move what is in the staging directory to `replaced`; drops what was kept before."""
        kept = self.replaced.with_name(path.name)
        with self.locked():  # never into, or out of, a directory that is not ours
            _remove(kept)
            kept.parent.mkdir(exist_ok=True)
            path.rename(kept)
        return kept

    def keep_file(self) -> Path:
        """Link the output, a file, into `replaced`, so that its name never vanishes."""
        self.replaced.parent.mkdir(exist_ok=True)
        link_or_copy(self.output, self._replaced_by_this)
        self._replaced_by_this.replace(self.replaced)
        return self.replaced

    def finish_swap(self) -> None:
        """Complete a swap that was killed between two renames, unless nothing can be written."""
        if not os.path.lexists(self.output) and self.is_ours() and self.ready.exists():
            # Where another process holds the lock, it does so, or is in the middle of a swap.
            with suppress(OutputExists, OSError), self.locked(wait_s=0):
                pass

    def close(self) -> None:
        """Remove the directory if it holds nothing but its marker; one that is not ours stays.

        Only for the holder of the lock: others may be about to lock the marker.
        """
        if not self.is_ours():
            return
        for below in (self.ready.parent, self.replaced.parent):
            with suppress(OSError):
                below.rmdir()
        with suppress(OSError):
            if list(self.path.iterdir()) == [self.marker]:
                self.marker.unlink()
                self.path.rmdir()

    def _open_marker(self) -> int:
        """Open the marker, in a directory that is made here or ours; any other is refused."""
        for number in range(_TRIES):  # another process may remove it between two of these lines
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                # One listing: between two listings, its last user may remove the marker.
                names = {path.name for path in self.path.iterdir()}
                if names and _MARKER not in names:
                    break
                return _open_to_lock(self.marker)
            except (FileExistsError, FileNotFoundError, NotADirectoryError):
                if number == _TRIES - 1 and not os.path.lexists(self.path):
                    raise  # nothing can be made here, such as in /proc
        raise OutputExists(
            f"{self.path} already exists and was not made by vlcpctl, which needs this name for "
            "temporary files; move it away, or choose another --out"
        )


def place_of(output: Path) -> Path:
    """Where an output is made: the real path of its parent, and its name.

    All spellings of a path are one place. A symbolic link to an output is another one.
    """
    if output.name in {"", ".."}:
        return Path(os.path.realpath(output))
    return Path(os.path.realpath(output.parent), output.name)


def is_free(place: Path) -> bool:
    """Whether an output may be made at a place: nothing is there, or an empty directory.

    Schedulers make such directories. A symbolic link is something, wherever it leads to.
    """
    if not os.path.lexists(place):
        return True
    if place.is_symlink() or not place.is_dir():
        return False
    return next(place.iterdir(), None) is None


def output_of(path: Path) -> Path | None:
    """The output whose staging directory has this path; None if the name is of no such directory.

    >>> output_of(Path("runs/.01.vlcpctl")).as_posix(), output_of(Path("runs/01"))
    ('runs/01', None)
    >>> output_of(Path("prod/.vlcpctl")).as_posix()
    'prod'
    """
    if path.name == _INSIDE:
        return path.parent
    name = _NAME.fullmatch(path.name)
    return None if name is None else path.with_name(name[1])


def staging_at(path: Path) -> Staging | None:
    """The staging directory that has this path; None if it is none, or vlcpctl has not made it."""
    output = output_of(path)
    found = None if output is None else Staging(output, inside=path.name == _INSIDE)
    return found if found is not None and found.is_ours() else None


def read_path(path: Path) -> Path:
    """Where to read an input: its path, after a swap has been completed that was killed half-way.

    Where nothing can be written, that is the place where the complete new output waits.
    """
    try:
        whole = Path(os.path.realpath(path))
    except ValueError:  # a NUL: whoever opens it names it
        return path
    for at in (whole, *whole.parents):
        if os.path.lexists(at):
            return path
        staging = Staging(at)
        staging.finish_swap()
        if not os.path.lexists(at) and staging.is_ours() and staging.ready.exists():
            return staging.ready / whole.relative_to(at)
    return path


def unfinished(path: Path) -> Path:
    """A new name beside a file, to write it under: no other process has it, on any host.

    Hosts that share a file system may have processes of the same number.
    """
    return path.with_name(f".{path.name}.tmp-{secrets.token_hex(8)}")


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it to another device or where a file system has no hard links.

    A symbolic link is linked itself; give its `resolve()` for its file. Raises OSError if `source`
    does not exist or cannot be copied.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copyfile(source, target, follow_symlinks=False)


def clone(source: Path, target: Path) -> None:
    """Copy a file; where the file system can, both share blocks until one is changed.

    Raises OSError if it cannot be copied.
    """
    with suppress(OSError), source.open("rb") as reading, target.open("xb") as writing:
        if hasattr(os, "copy_file_range"):
            while os.copy_file_range(reading.fileno(), writing.fileno(), _MOST_CLONED):
                pass
            return
    shutil.copyfile(source, target)


def sync(path: Path) -> None:
    """Wait until a file or a directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Wait until a directory and everything below it is on the disk."""
    for path in (*directory.rglob("*"), directory):
        if not path.is_symlink():
            sync(path)


def delete(path: Path) -> None:
    """Delete a file or a directory. Raises OSError if something of it would be left."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    sync(path.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; False where that cannot be done."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # of Linux's libraries
    if rename is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _matching(directory: Path, pattern: str) -> list[Path]:
    try:
        return list(directory.glob(pattern))
    except FileNotFoundError:  # its last holder removed it meanwhile
        return []


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _open_to_lock(path: Path) -> int:
    flags = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe of this name must not block
    try:
        return os.open(path, os.O_RDWR | flags, 0o666)
    except PermissionError:
        return os.open(path, os.O_RDONLY | flags, 0o666)  # another user's; it can be locked
