"""Outputs that are whole or absent, and what is beside them.

.NAME.vlcpctl/made-by-vlcpctl       the lock; a directory without it is never touched
.NAME.vlcpctl/part-I-of-N           the lock of a process that computes a part of the output
.NAME.vlcpctl/writing-HOST-PID      what a process is writing, a file or a directory
.NAME.vlcpctl/ready                 complete, and about to take the place of NAME
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import final

from vlcpctl.core.console import say
from vlcpctl.core.ending import at_signal
from vlcpctl.core.errors import OutputExists, UsageError
from vlcpctl.core.words import as_word
from vlcpctl.files.locks import Lock, acquire

_LOCK, _INSIDE = "made-by-vlcpctl", ".vlcpctl"
_HIDDEN = re.compile(r"\.(.+)\.vlcpctl", re.DOTALL)
_TRIES = 100
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# How a file system, a container or an old kernel says that it cannot exchange names.
_CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.ENOTSUP, errno.EPERM})
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of linux/fcntl.h and linux/fs.h


@final
class Output:
    """The place of an output, and the hidden directory beside it, which `locked` creates.

    With `inside`, that is in the directory that the output is. All paths that lead to an output
    have the same one.
    """

    def __init__(self, path: Path, *, inside: bool = False) -> None:
        self.given = path
        self.place = Path(os.path.realpath(path)) if inside else place_of(path)
        beside = self.place.with_name(f".{self.place.name}.vlcpctl")
        self.hidden = self.place / _INSIDE if inside else beside
        self.lock = self.hidden / _LOCK
        self.ready = self.hidden / "ready"
        self.replaced = self.hidden / "replaced" / self.place.name
        self.partial = self.hidden / "partial"
        self.writing = self.hidden / f"writing-{socket.gethostname()}-{os.getpid()}"
        self._old = self.writing.with_name(f"{self.writing.name}-old")

    def is_ours(self) -> bool:
        """Whether the hidden directory exists and vlcpctl made it."""
        return self.lock.is_file()

    @contextmanager
    def locked(self, part: str = "", *, wait_s: float | None = None) -> Iterator[None]:
        """Hold the lock of the output, or of a part of it, within the block; also again inside it.

        Parts may be computed by several processes at once. What dead writers left is completed or
        removed. Waits as `acquire` does. Raises OutputExists if another process writes the output
        or this part, or if vlcpctl has not made the hidden directory.
        """
        new_parents = [path for path in self.hidden.parents if not path.exists()]
        held: list[Lock] = []

        def leave() -> None:
            while held:
                self._leave(held.pop())
            with suppress(OSError):  # not empty, or there is none
                for parent in new_parents:
                    parent.rmdir()

        take = partial(acquire, output=self.place, wait_s=wait_s)
        with at_signal(leave):
            try:
                held.append(take(self.lock, self._open_lock, is_shared=bool(part)))
                if part:
                    file = self.hidden / f"part-{part}"
                    held.append(take(file, partial(_open, file)))
                elif held[0].uses == 1:
                    self._tidy(held[0])
                yield
            finally:
                leave()

    def _open_lock(self) -> int:
        """Open the file of the lock, in a directory that is made here or ours."""
        for tries_left in reversed(range(_TRIES)):
            try:
                self.hidden.mkdir(parents=True, exist_ok=True)
                # One listing: between two listings, its last user may remove the lock.
                names = {path.name for path in self.hidden.iterdir()}
                if names and _LOCK not in names:
                    break
                return _open(self.lock)
            except FileExistsError:
                continue
            except FileNotFoundError:  # its last user has just removed it, or nobody can make it
                if not tries_left:
                    raise
        raise OutputExists(
            f"{self.hidden} was not made by vlcpctl, which needs this name for temporary files; "
            "move it away, or choose another --out"
        )

    def _leave(self, lock: Lock) -> None:
        """Release a lock; its last use removes its file, with all that nobody needs any more."""
        if lock.uses == 1 and lock.path != self.lock:
            lock.path.unlink(missing_ok=True)
        elif lock.uses == 1 and lock.is_only():
            self._tidy(lock)
            with suppress(OSError):  # nothing is kept there, or something is
                self.replaced.parent.rmdir()
            with suppress(OSError):
                if list(self.hidden.iterdir()) == [self.lock]:
                    self.lock.unlink()
                    self.hidden.rmdir()
        lock.release()

    def _tidy(self, lock: Lock) -> None:
        """Complete a swap that was killed half-way; remove what dead writers were writing."""
        if self.ready.exists() and not os.path.lexists(self.place):
            self.ready.rename(self.place)
        if lock.is_real:  # else another writer may be alive
            remove(self.ready, strictly=False)
            for pattern in ("writing-*", "part-*", "partial/.*.tmp-*"):
                for path in self.hidden.glob(pattern):
                    remove(path, strictly=False)

    def open_partial(self) -> Path:
        """Make the directory for the state of unfinished work. Raises as `locked` does."""
        with self.locked():
            self.partial.mkdir(exist_ok=True)
        return self.partial

    def drop_partial(self, *, keeps: bool = False) -> None:
        """Remove the state of work that is finished or starts over; `keeps` it in `replaced`."""
        if keeps or self.is_ours():
            with self.locked():  # never in a directory that is not ours
                if keeps:
                    self._move(self.partial, self.replaced.with_name(self.partial.name))
                remove(self.partial, strictly=False)

    @contextmanager
    def made(self, refuse: Callable[[], None], *, keeps: bool) -> Iterator[Path]:
        """A path to make a file or a directory at, which becomes the output when the block ends.

        What it replaces is kept in `replaced` with `keeps`, else deleted for good. `refuse` raises
        for what must not be replaced: it may come meanwhile.
        """
        with naming_output(self.place), self.locked():
            self._refuse_layer()
            try:
                yield self.writing
                refuse()
                for path in (*self.writing.rglob("*"), self.writing):
                    if not path.is_symlink():
                        sync(path)
                self._put(keeps=keeps)
            finally:
                remove(self.writing, strictly=False)

    def _put(self, *, keeps: bool) -> None:
        """Put what was written in the output's place, and say where the old one is kept.

        A kill at any point leaves the old or the new one, at its place or in `ready`, and an old
        one that is kept in `replaced`.
        """
        old, is_replaced = self.writing, not is_free(self.place)
        if is_replaced and self.writing.is_dir():
            if keeps:  # where the old one is to be, so that one exchange does all
                old = self._move(self.writing, self.replaced)
            if not _exchange(old, self.place):
                self._move(old, self.ready)
                self.place.rename(old)
                self.ready.rename(self.place)
        else:
            if is_replaced and keeps:
                link_or_copy(self.place, self.ready)  # the name of the old one never vanishes
                self._move(self.ready, self.replaced)
            self.writing.replace(self.place)  # also over an empty directory
        sync(self.place.parent)
        if is_replaced and not keeps:
            remove(self.writing)
        elif is_replaced:
            is_whole = self.given.is_absolute()
            shown = self.replaced if is_whole else os.path.relpath(self.replaced)
            where = f"the previous output is kept in {shown} until the next --force"
            say(f"replaced {self.given}; {where}")

    def _move(self, path: Path, to: Path) -> Path:
        """Rename in the hidden directory; a directory that had the name is removed after that."""
        to.parent.mkdir(exist_ok=True)
        if to.is_dir() or path.is_dir():
            with suppress(FileNotFoundError):
                to.rename(self._old)
        path.replace(to)
        remove(self._old, strictly=False)
        return to

    def _refuse_layer(self) -> None:
        """Raise OutputExists for an old directory that the system does not let anybody rename."""
        try:
            if not is_free(self.place) and self.place.is_dir():
                self.place.rename(self.hidden)  # fails: the lock is in it
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise OutputExists(
                    f"{self.place} is part of a container's image, of which no directory can be "
                    "replaced; write to a volume"
                ) from None


@contextmanager
def new_directory(out: Path, is_ours: Callable[[Path], bool]) -> Iterator[Path]:
    """A fresh directory that becomes the output when the block ends without an error.

    The block writes every file and, last, the manifest. A directory at `out` that `is_ours`
    recognises is kept in the hidden directory; an empty one is replaced. Raises OutputExists if
    something else is there.
    """
    refuse = partial(refuse_foreign, out, is_ours, is_file=False)
    refuse()
    with Output(out).made(refuse, keeps=True) as temporary:
        temporary.mkdir()
        yield temporary


@contextmanager
def new_file(out: Path, is_ours: Callable[[Path], bool], *, keeps: bool = True) -> Iterator[Path]:
    """A path to write to, which becomes the output when the block ends without an error.

    A file at `out` that `is_ours` recognises, or an empty one, is replaced; with `keeps`, it is
    kept in the hidden directory. A pipe or a device is written to as it is. Raises OutputExists if
    something else is there.
    """
    if is_pipe_or_device(out):
        with naming_output(out):
            yield out
        return
    refuse = partial(refuse_foreign, out, is_ours, is_file=True)
    refuse()
    with Output(out).made(refuse, keeps=keeps) as temporary:
        yield temporary


def rewriting(out: Path) -> AbstractContextManager[Path]:
    """A path to make a file or a directory at, which takes the place of `out`; nothing is kept."""
    return Output(out).made(lambda: None, keeps=False)


@contextmanager
def new_part(file: Path) -> Iterator[Path]:
    """A path to write to, renamed to `file` at the end: for files inside a directory of ours."""
    temporary = unfinished(file)
    discard = partial(temporary.unlink, missing_ok=True)
    with naming_output(file), at_signal(discard):
        try:
            yield temporary
            sync(temporary)
            temporary.replace(file)
            sync(file.parent)
        finally:
            discard()


def read_path(path: Path) -> Path:
    """The path of an input, after a swap has been completed that was killed half-way."""
    with suppress(ValueError):  # a NUL: whoever opens it names it
        whole = Path(os.path.realpath(path))
        for at in (whole, *whole.parents):
            if os.path.lexists(at):
                break
            output = Output(at)
            if output.is_ours() and output.ready.exists():
                # Where another process holds the lock, it completes the swap itself.
                with suppress(OutputExists, OSError), output.locked(wait_s=0):
                    pass
    return path


def check_output_path(out: Path, inputs: Iterable[Path] = (), option: str = "--out") -> None:
    """Refuse with UsageError a place, the value of `option`, where no output may be made.

    These are `-` (stdout), pipes and devices, and what is or contains the home directory, the
    current one, or one of `inputs`.
    """
    if out == Path("-") or is_pipe_or_device(out):
        raise UsageError(
            f"{out} is stdout, a pipe or a device; give the path of a new file or directory"
        )
    real = Path(os.path.realpath(out))
    named = {"the current directory": Path.cwd(), "the home directory": Path("~").expanduser()}
    for what, path in {**named, **{f"the input {given}": given for given in inputs}}.items():
        other = Path(os.path.realpath(path))
        if real == other or real in other.parents:
            raise UsageError(f"the output {out} is or contains {what}; choose another {option}")


def refuse_foreign(
    out: Path,
    is_ours: Callable[[Path], bool],
    *,
    is_file: bool,
    is_read: bool = False,
    option: str = "--out",
) -> None:
    """Raise OutputExists if a file, or else a directory, cannot be made at `out`.

    It may be free, or what `is_ours` recognises. Unless that is only read, it may be no link, whose
    target is not what was named and may be shared, and no mount point. Raises UsageError as
    `check_output_path` does. `option` is the one to give another value, for messages.
    """
    check_output_path(out, option=option)
    real = Path(os.path.realpath(out))
    if out.exists() and (out.is_dir() is is_file or not (is_free(real) or is_ours(out))):
        what = "file" if is_file else "directory"
        raise OutputExists(
            f"{out} already exists and is not a {what} of vlcpctl that this command replaces; "
            f"choose another {option}"
        )
    if out.is_symlink() and not is_read:
        raise OutputExists(
            f"{out} is a symbolic link, and an output replaces neither a link nor what it leads "
            f"to; remove the link, or give {as_word(real)}"
        )
    if os.path.ismount(out) and not is_read:
        raise OutputExists(
            f"{out} is a mount point, which cannot be replaced; choose a path in it, such as "
            f"{out / 'out'}"
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


def place_of(output: Path) -> Path:
    """Where an output is made: the real path of its parent, and its name.

    All spellings of a path are one place. A symbolic link to an output is another one.
    """
    if output.name in {"", ".."}:
        return Path(os.path.realpath(output))
    return Path(os.path.realpath(output.parent), output.name)


def is_free(place: Path) -> bool:
    """Whether nothing is at a place, or an empty file or directory, as schedulers make them.

    A symbolic link is something, wherever it leads to.
    """
    if not os.path.lexists(place):
        return True
    is_filled = any(place.iterdir()) if place.is_dir() else place.lstat().st_size
    return not is_filled and not place.is_symlink()


def output_of(hidden: Path) -> Path | None:
    """The output that a hidden directory of this path is beside; None for any other name.

    >>> output_of(Path("runs/.01.vlcpctl")).as_posix(), output_of(Path("runs/01"))
    ('runs/01', None)
    >>> output_of(Path("prod/.vlcpctl")).as_posix()
    'prod'
    """
    if hidden.name == _INSIDE:
        return hidden.parent
    name = _HIDDEN.fullmatch(hidden.name)
    return None if name is None else hidden.with_name(name[1])


def output_at(hidden: Path) -> Output | None:
    """The output whose hidden directory has this path; None if vlcpctl has not made it."""
    path = output_of(hidden)
    found = None if path is None else Output(path, inside=hidden.name == _INSIDE)
    return found if found is not None and found.is_ours() else None


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


def sync(path: Path) -> None:
    """Wait until a file or a directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path, *, strictly: bool = True) -> None:
    """Delete a file or a directory. Raises OSError, unless not `strictly`, if any of it is left."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not strictly)
    else:
        path.unlink(missing_ok=True)
    if strictly:
        sync(path.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; False where that cannot be done."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # of Linux's libraries
    names = os.fsencode(one), os.fsencode(other)
    if rename is None:
        return False
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _open(path: Path) -> int:
    # A pipe of this name must not block.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
