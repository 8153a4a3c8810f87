"""Where a state directory keeps what: the start, the accepted weeks, and the week being made.

state.json               the start, the settings and the accepted weeks; written last
start/                   the checkpoint that the first week continues, its buffer and its rows
weeks/0001/              an accepted week: stream, checkpoint, buffer, rows, ranks and report
pending/                 the week being made; after a rejection it stays until the next week starts
rolled-back/0001/        a week that `--rollback` took back; the last one of each number
current                  a link to the checkpoint to deploy: that of the last accepted week

A week also has week.json, its data and settings, and verdict.json, how it was judged.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.staging import Staging, link_or_copy, sync

MOST_WEEKS = 9999  # the names of their directories have four digits
TASK = "00-week-{:04d}"  # the directory of a week's only task
_START = "start"


@dataclass(frozen=True)
class Layout:
    """The paths in a state directory; `root` is used as it was given, so lines stay relative."""

    root: Path

    @property
    def state(self) -> Path:
        """The file that makes the directory a state directory."""
        return self.root / "state.json"

    @property
    def start(self) -> Path:
        """The directory of the start."""
        return self.root / _START

    @property
    def pending(self) -> Path:
        """The directory of the week being made, or of the rejected one."""
        return self.root / "pending"

    @property
    def current(self) -> Path:
        """The link to the checkpoint to deploy."""
        return self.root / "current"

    def week(self, number: int) -> Path:
        """The directory of an accepted week; of week 0, that of the start."""
        return self.root / "weeks" / f"{number:04d}" if number else self.start

    def rolled_back(self, number: int) -> Path:
        """Where `--rollback` puts a week."""
        return self.root / "rolled-back" / f"{number:04d}"

    def tidy(self) -> None:
        """Remove temporary files that a killed process left; only for the holder of the lock."""
        for left in (*self.root.glob(".*.tmp-*"), *self.pending.glob(".*.tmp-*")):
            left.unlink(missing_ok=True)

    def discard(self, path: Path) -> None:
        """Remove a file or directory below the root: it is gone at once, or it is still whole.

        Only for the holder of the lock: what is being removed is in the staging directory, where
        the next holder of the lock removes what is left of it after a kill.
        """
        if not os.path.lexists(path):
            return
        grave = Staging(self.root).writing
        path.rename(grave)
        if grave.is_dir() and not grave.is_symlink():
            shutil.rmtree(grave)
        else:
            grave.unlink()

    def move(self, source: Path, target: Path) -> None:
        """Rename a directory below the root, and wait until that is on the disk."""
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
        sync(source.parent)
        sync(target.parent)

    def link_tree(self, source: Path, target: Path) -> None:
        """Make `target` a directory with the files of `source`, hard-linked where possible.

        It appears when it is complete. Only for the holder of the lock.
        """
        making = Staging(self.root).writing
        for path in sorted(source.rglob("*")):
            place = making / path.relative_to(source)
            if path.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(path.resolve(), place)
        self.move(making, target)

    def point_to(self, number: int) -> None:
        """Let `current` be a link to the checkpoint of this week, if it is not yet.

        Where the file system has no links, there is none: state.json names the week.
        """
        target = Path(os.path.relpath(self.week(number) / "checkpoint", self.root))
        if self.current.is_symlink() and self.current.readlink() == target:
            return
        temporary = self.current.with_name(f".current.tmp-{os.getpid()}")
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(target)
            temporary.replace(self.current)  # never a moment without a link
            sync(self.root)


def relative_to_root(root: Path, path: Path) -> str:
    """A path to record: relative to the state directory, so that both can be moved together."""
    return os.path.relpath(os.path.realpath(path), os.path.realpath(root))


def shown_path(root: Path, recorded: str) -> Path:
    """A recorded path as lines have it: relative if it is below the current directory."""
    whole = Path(os.path.normpath(Path(os.path.realpath(root)) / recorded))
    here = Path.cwd()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole
