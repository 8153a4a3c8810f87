"""The staging directory of an output: what is being written, and what a new output replaced.

.NAME.vlcpctl/made-by-vlcpctl       the marker; a directory without it is never touched
.NAME.vlcpctl/writing-HOST-PID      what a process is writing, a file or a directory
.NAME.vlcpctl/ready/NAME            complete, and about to take the place of NAME
.NAME.vlcpctl/replaced/NAME         what --force replaced last
.NAME.vlcpctl/partial/              the state of unfinished work, from which it resumes

It is beside the output, so that a rename never crosses a file system, and hidden, so that globs
such as `weeks/*/` do not see it. Nothing outside of it is ever moved or removed except the output
itself.
"""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import final

from vlcpctl.core.errors import Incompatible, OutputExists

_MARKER = "made-by-vlcpctl"
_MARKER_TEXT = """\
vlcpctl stores unfinished outputs here, and the previous output that --force replaced.
This directory may be removed when no vlcpctl command is running.
"""
_TRIES = 5


@final
class Staging:
    """The staging directory of one output. It need not exist, and is made by `open`."""

    def __init__(self, output: Path) -> None:
        self.output = Path(os.path.abspath(output))
        self.path = self.output.with_name(f".{self.output.name}.vlcpctl")
        self.ready = self.path / "ready" / self.output.name
        self.replaced = self.path / "replaced" / self.output.name
        self.partial = self.path / "partial"
        self.writing = self.path / f"writing-{socket.gethostname()}-{os.getpid()}"

    def open(self) -> None:
        """Make the directory, so that this process can write to the path `writing` in it.

        What dead processes of this machine were writing is removed. Raises OutputExists if a
        directory of that name was not made by vlcpctl.
        """
        self._make()
        prefix = self.writing.name.removesuffix(str(os.getpid()))
        for path in self.path.glob("writing-*"):
            pid = path.name.removeprefix(prefix)
            if path.name.startswith(prefix) and pid.isdigit() and not _alive(int(pid)):
                _remove(path)

    def open_partial(self) -> Path:
        """Make the directory for the state of unfinished work. Raises as `open` does."""
        self._make()
        self.partial.mkdir(exist_ok=True)
        return self.partial

    def refuse_old_partial(self) -> None:
        """Refuse an unfinished run where version 0.1.0 kept it, in NAME.partial."""
        old = self.output.with_name(f"{self.output.name}.partial")
        if (old / "identity.json").is_file():
            raise Incompatible(
                f"{old} is an unfinished run of an earlier version of vlcpctl, which this version "
                "does not resume; finish it with that version or remove it, or --force starts over"
            )

    def drop_partial(self) -> None:
        """Remove the state of work that is finished or starts over."""
        if self.is_ours():
            _remove(self.partial)
            self.close()

    def is_ours(self) -> bool:
        """Whether the directory exists and vlcpctl made it."""
        return (self.path / _MARKER).is_file()

    def swap_in(self, written: Path) -> Path | None:
        """Put a complete directory in the output's place; returns where the old one is kept.

        A kill at any point leaves the old or the new one, at its place or in `ready`.
        """
        _remove(self.ready)
        self.ready.parent.mkdir(exist_ok=True)
        written.rename(self.ready)
        kept = self.keep(self.output) if os.path.lexists(self.output) else None
        self.ready.rename(self.output)
        sync(self.output.parent)
        return kept

    def keep(self, path: Path) -> Path:
        """Move the output, or its partial state, to `replaced`; drops what was kept before."""
        self._make()  # never into, or out of, a directory that is not ours
        kept = self.replaced.with_name(path.name)
        _remove(kept)
        kept.parent.mkdir(exist_ok=True)
        path.rename(kept)
        return kept

    def keep_file(self) -> Path:
        """Link the output, a file, into `replaced`, so that its name never vanishes."""
        _remove(self.replaced)
        self.replaced.parent.mkdir(exist_ok=True)
        link_or_copy(self.output, self.replaced)
        return self.replaced

    def finish_swap(self) -> None:
        """Complete a swap that was killed between its two renames."""
        if os.path.lexists(self.output) or not self.is_ours():
            return
        with suppress(FileNotFoundError):  # nothing waits, or another process was faster
            self.ready.rename(self.output)
            self.close()

    def close(self) -> None:
        """Remove the directory if it holds nothing but its marker; one that is not ours stays."""
        if not self.is_ours():
            return
        for below in (self.ready.parent, self.replaced.parent):
            with suppress(OSError):
                below.rmdir()
        with suppress(OSError):
            if [path.name for path in self.path.iterdir()] == [_MARKER]:
                (self.path / _MARKER).unlink()
                self.path.rmdir()

    def _make(self) -> None:
        """Make the directory with its marker, or enter it; one that is not ours is refused."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):  # another process may remove it between two of these lines
            with suppress(FileExistsError):
                self.path.mkdir()
            with suppress(FileNotFoundError, NotADirectoryError):
                if not any(self.path.iterdir()):
                    (self.path / _MARKER).write_text(_MARKER_TEXT)
            if self.is_ours():
                return
        raise OutputExists(
            f"{self.path} already exists and was not made by vlcpctl, which needs this name for "
            "temporary files; move it away, or choose another --out"
        )


def read_path(path: Path) -> Path:
    """Where to read an input: its path, or inside a swap that was killed between two renames.

    Readers never rename anything, so they look where the complete new output waits.
    """
    whole = Path(os.path.abspath(path))
    for at in (whole, *whole.parents):
        if os.path.lexists(at):
            return path
        staging = Staging(at)
        if staging.is_ours() and staging.ready.exists():
            return staging.ready / whole.relative_to(at)
    return path


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it to another device or where a file system has no hard links.

    A symbolic link is linked itself; give its `resolve()` for its file. Raises OSError if `source`
    does not exist or cannot be copied.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def sync(path: Path) -> None:
    """Wait until a file or a directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
