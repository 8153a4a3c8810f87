"""Where a state directory keeps what: the start, the accepted weeks, and the week being made.

state.json               the start, the settings and the accepted weeks; written last
start/                   the checkpoint that the first week continues, its buffer and its rows
weeks/0001/              an accepted week: stream, checkpoint, buffer, rows, ranks and report
pending/                 the week being made; after a rejection it stays until the next week starts
rejected/0001-1/         a rejected week without weights and buffer, and which one of its number
rolled-back/0001/        a week that `--rollback` or `--redo` took back; the second one is 0001-2
redo/                    weeks that `--redo` makes again, until all are accepted; see `aside`
embeddings/              of the guards, by the models that are compared with; see `bound`
deleted/                 stop lists of `vlcpctl forget`: pairs that no later week takes in
history.ndjson           the ledger: a line for each action, see `ledger`
current                  a link to the checkpoint to deploy: that of the last accepted week
.vlcpctl/                its lock and what is being written or removed, while an update runs

A week of which merged weights are deployed (--deploy) has what was trained in `trained/`.
A week also has week.json, its data and settings, verdict.json, how it was judged, and seconds.json,
how long each command took.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.console import say
from vlcpctl.core.errors import OutputExists, some_names
from vlcpctl.core.words import printable, shown
from vlcpctl.files.inputs import MOST_TASKS
from vlcpctl.files.outputs import Output, link_or_copy, output_at, sync
from vlcpctl.files.stores import is_stored, place_of, protocol_of

MOST_WEEKS = MOST_TASKS - 1  # the names of their directories have four digits
TASK = "00-week-{:04d}"  # the directory of a week's only task
_START, _REJECTED, _ROLLED_BACK = "start", "rejected", "rolled-back"
SECONDS_FILE = "seconds.json"
TRAINED = "trained"  # of a week, if what is deployed was merged from it
PAGE = "week.html"  # in the report of the week
OF_WEEK = frozenset(
    {"buffer", "checkpoint", "ranks", "report", "rows", "stream", "verdict.json", "week.json"}
    | {SECONDS_FILE, TRAINED}
)
_NUMBERED = re.compile(r"[0-9]{4}(-[1-9][0-9]*)?")
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


@dataclass(frozen=True)
class Layout:
    """The paths in a state directory; `root` is used as it was given, so lines stay relative.

    With `aside`, the weeks from this number on, the pending one and the state are those of `redo/`.
    """

    root: Path
    aside: int | None = None

    @property
    def state(self) -> Path:
        """The file that makes the directory a state directory."""
        return self.root / "state.json" if self.aside is None else self.redo / "redo.json"

    @property
    def _making(self) -> Path:
        return self.root if self.aside is None else self.redo

    @property
    def redo(self) -> Path:
        """The directory of the weeks that are made again."""
        return self.root / "redo"

    @property
    def redone_checkpoint(self) -> Path:
        """What `current` is a link to while the weeks of `redo/` replace those that they are."""
        return self.redo / "checkpoint"

    @property
    def start(self) -> Path:
        """The directory of the start."""
        return self.root / _START

    @property
    def pending(self) -> Path:
        """The directory of the week being made, or of the rejected one."""
        return self._making / "pending"

    @property
    def current(self) -> Path:
        """The link to the checkpoint to deploy."""
        return self.root / "current"

    @property
    def history(self) -> Path:
        """The file of the ledger."""
        return self.root / "history.ndjson"

    def week(self, number: int) -> Path:
        """The directory of an accepted week; of week 0, that of the start."""
        if not number:
            return self.start
        is_aside = self.aside is not None and number >= self.aside
        return (self.redo if is_aside else self.root) / "weeks" / f"{number:04d}"

    @property
    def embeddings(self) -> Path:
        """The embeddings of the guards by the start, the last week and that of the index."""
        return self.root / "embeddings"

    def trimmed(self, number: int) -> Path:
        """The file that marks a week of which --keep has removed the weights; it has its keys."""
        found = self.week(number) / "trimmed.parquet"
        earlier = found.with_suffix(".json")  # of version 0.3.0
        return earlier if earlier.exists() and not found.exists() else found

    def is_trimmed(self, number: int) -> bool:
        """Whether --keep has removed the weights, the buffer and the pairs of a week."""
        return number > 0 and self.trimmed(number).exists()

    def known(self, number: int) -> Path:
        """What has the keys of a week: its task, or if it is trimmed, their list."""
        if self.is_trimmed(number):
            return self.trimmed(number)
        return self.week(number) / "stream" / TASK.format(number)

    def numbers_from(self, first: int) -> list[int]:
        """The numbers from the first on that have a directory in `weeks/`, in order."""
        found = sorted((self.root / "weeks").glob("[0-9]" * 4))
        return [int(one.name) for one in found if int(one.name) >= first]

    def rolled_back(self) -> list[Path]:
        """The directories of the weeks that were taken back, in order of their numbers."""
        return self._numbered(_ROLLED_BACK)

    def next_rolled_back(self, number: int) -> Path:
        """Where a week of this number goes when it is taken back: each to another place."""
        known = [one for at, one in map(_order, self.rolled_back()) if at == number]
        suffix = f"-{max(known) + 1}" if known else ""
        return self.root / _ROLLED_BACK / f"{number:04d}{suffix}"

    def rejected(self) -> list[Path]:
        """The directories of the rejected weeks, in order of their numbers."""
        return self._numbered(_REJECTED)

    def next_rejected(self, number: int) -> Path:
        """Where a week of this number goes when it was rejected: each to another place."""
        known = [one for at, one in map(_order, self.rejected()) if at == number]
        return self.root / _REJECTED / f"{number:04d}-{max(known, default=0) + 1}"

    def _numbered(self, name: str) -> list[Path]:
        found = (self.root / name).glob("*/")
        return sorted((one for one in found if _NUMBERED.fullmatch(one.name)), key=_order)

    @property
    def scratch(self) -> Output:
        """The hidden directory, inside the real directory: that may be a mounted volume."""
        return Output(Path(os.path.realpath(self.root)), inside=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the state directory within the block, whichever path it was given by.

        Versions before 0.3.0 had it beside the directory: if it is there, it is held, too, and what
        they left in it is removed. Raises as `Output.locked` does.
        """
        with ExitStack() as locks:
            locks.enter_context(self.scratch.locked())
            for path in dict.fromkeys([self.root, self.scratch.place]):
                if Output(path).is_ours():
                    locks.enter_context(Output(path).locked())
            yield

    def tidy(self) -> None:
        """Remove temporary files that a killed process left; only for the holder of the lock."""
        for left in (*self._making.glob(".*.tmp-*"), *self.pending.glob(".*.tmp-*")):
            left.unlink(missing_ok=True)

    def discard(self, path: Path) -> None:
        """Remove a file or directory below the root: it is gone at once, or it is still whole.

        Only for the holder of the lock: what is being removed is in the hidden directory, where
        the next holder of the lock removes what is left of it after a kill.
        """
        if not os.path.lexists(path):
            return
        grave = self.scratch.writing
        path.rename(grave)
        if grave.is_dir() and not grave.is_symlink():
            shutil.rmtree(grave)
        else:
            grave.unlink()

    def discard_pending(self) -> None:
        """Remove the week being made; files that `update` has not made stay, which is said.

        Only for the holder of the lock.
        """
        found = sorted(self.pending.iterdir()) if self.pending.is_dir() else []
        others = [one for one in found if one.name not in OF_WEEK and output_at(one) is None]
        if not others:
            self.discard(self.pending)
            return
        # First week.json: without it, what a kill leaves is no week.
        for path in sorted(set(found) - set(others), reverse=True):
            self.discard(path)
        names = printable(some_names([one.name for one in others]))
        say(f"{self.pending} keeps what update has not made: {names}")

    def move(self, source: Path, target: Path) -> None:
        """Rename a directory below the root, and wait until that is on the disk."""
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
        sync(source.parent)
        sync(target.parent)

    def link_tree(
        self, source: Path, target: Path, link: Callable[[Path, Path], None] = link_or_copy
    ) -> None:
        """Make `target` a directory with the files of `source`, each linked, or copied by `link`.

        It appears when it is complete. Only for the holder of the lock.
        """
        making = self.scratch.writing
        for path in sorted(source.rglob("*")):
            place = making / path.relative_to(source)
            if path.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                link(path.resolve(), place)
        self.move(making, target)

    def point_to(self, number: int) -> None:
        """Let `current` be a link to the checkpoint of this week, if it is not yet.

        Where the file system has no links, there is none, which is said. Only for the holder of the
        lock. Raises OutputExists if `current` is no link.
        """
        self._link_to(self.week(number) / "checkpoint", number)

    def point_to_redone(self, number: int) -> None:
        """Let `current` be a link to the copy of the checkpoint of this week, which does not move.

        See `point_to`.
        """
        self._link_to(self.redone_checkpoint, number)

    def _link_to(self, checkpoint: Path, number: int) -> None:
        if self.current.is_symlink():
            if os.path.realpath(self.current) == os.path.realpath(checkpoint):
                return
        elif os.path.lexists(self.current):
            self.require_current([number])
        temporary = self.scratch.writing
        try:
            temporary.symlink_to(checkpoint.relative_to(self.root))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            say(f"{self.current} is not made: this file system has no links; deploy {checkpoint}")
            return
        try:
            temporary.replace(self.current)  # never a moment without a link
        finally:
            temporary.unlink(missing_ok=True)
        sync(self.root)
        if os.path.realpath(self.current) != os.path.realpath(checkpoint):
            self.require_current([number])

    def fault_of_current(self, numbers: Sequence[int]) -> str | None:
        """What `current` is, if it is there and no link to the checkpoint of one of these weeks."""
        if not os.path.lexists(self.current):
            return None
        if not self.current.is_symlink():
            return "a directory" if self.current.is_dir() else "a file"
        real = os.path.realpath(self.current)
        allowed = [self.redone_checkpoint, *(self.week(one) / "checkpoint" for one in numbers)]
        if any(real == os.path.realpath(one) for one in allowed):
            return None
        return f"a link to {printable(self.current.readlink())}"

    def require_current(self, numbers: Sequence[int]) -> None:
        """Raise OutputExists unless `current` is the link to one of these weeks, or missing."""
        fault = self.fault_of_current(numbers)
        if fault is not None:
            raise OutputExists(self.repair_of_current(fault, numbers[0]))

    def repair_of_current(self, fault: str, number: int) -> str:
        """The message for a `current` that is not the link to the checkpoint of this week."""
        repair = shlex.join(["mv", str(self.current), f"{self.current}.old"])
        return (
            f"{self.current} is {fault}, not the link to {self.week(number) / 'checkpoint'} that "
            f"'vlcpctl update' makes; move it away with '{repair}', and the next update makes the "
            "link again"
        )


def week_number(text: str) -> int | None:
    """The number of a week; None if the text is not one, or longer than a number of a week can be.

    Python refuses to convert thousands of digits.
    """
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _order(week: Path) -> tuple[int, int]:
    """The number of a rejected or rolled-back week, and which of this number it is."""
    number, _, which = week.name.partition("-")
    return int(number), int(which or 1)


def sizes_of(week: Path) -> dict[str, int]:
    """The bytes of each directory in a week, but for its page."""
    found: dict[str, int] = {}
    for path in sorted(week.rglob("*")):
        parts = path.relative_to(week).parts
        if path.is_file() and path.name != PAGE and len(parts) > 1:
            found[parts[0]] = found.get(parts[0], 0) + path.stat().st_size
    return found


def relative_to_root(root: Path, path: Path) -> str:
    """A path to record: relative to the state directory, so that both can be moved together.

    Of what is in an object store, it is the URL.
    """
    if is_stored(path):
        return shown(str(path))
    return os.path.relpath(os.path.realpath(path), os.path.realpath(root))


def shown_path(root: Path, recorded: str) -> Path:
    """A recorded path as lines have it: relative if it is below the current directory.

    Of a URL, it is where the cache has what was listed.
    """
    if protocol_of(recorded) is not None:
        return place_of(recorded)
    whole = Path(os.path.normpath(Path(os.path.realpath(root)) / recorded))
    here = Path.cwd()
    return word_of(whole.relative_to(here)) if whole.is_relative_to(here) else whole


def word_of(path: Path) -> Path:
    """A path that no command line takes for an option: whole if it starts with a dash."""
    return Path(os.path.abspath(path)) if str(path).startswith("-") else path


def local_source(text: str) -> str:
    """A source as it is recorded, as it can be read: of a URL, see `shown_path`."""
    return text if protocol_of(text) is None else str(place_of(text))
