"""A state directory: attempts in directories that never move, and one file that says which count.

state.json        the attempts, and the head: the accepted ones in order, the start first
events.ndjson     what was done, when and by whom: a numbered line for each change
update.toml       the settings, see `settings`
attempts/0007/    stream, and rows and ranks of the models before; in draw-0, draw-1 a training
                  each: checkpoint, buffer, rows, ranks, report, and `trained` if what is deployed
                  was merged from it
embeddings/       of the guards, by the models that are compared with
deleted/          stop lists of `vlcpctl forget`: pairs that no later week takes in
current           a link to the checkpoint to deploy: that of the last accepted attempt
.vlcpctl/         its lock and what is being written or removed, while an update runs

A change replaces state.json in one rename; its event, which state.json has, too, is then added to
events.ndjson, and the next call completes what a kill left of that.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import vlcpctl
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, OutputExists
from vlcpctl.core.words import shown
from vlcpctl.data.splitting.leaving_out import Counts
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.files.digests import verify_files
from vlcpctl.files.inputs import converted, read_json_object
from vlcpctl.files.manifest import SEAL, check_seal, seal_of
from vlcpctl.files.outputs import Output, naming_output, new_part, remove, sync
from vlcpctl.files.stores import is_stored, place_of, protocol_of
from vlcpctl.metrics.chance import margin_of
from vlcpctl.production.toml_text import write_settings
from vlcpctl.report.gates import Verdict, in_words

SCHEMA = "vlcpctl.state/2"
MAKING, PASSED, REJECTED = "making", "passed", "rejected"  # an attempt that passed may count
EARLIER = "earlier"  # the task that the first buffer is filled from
TRAINED = "trained"
Sections = dict[str, dict[str, Any]]
Observe = Callable[[str], None]

_SCHEMA_0_3 = "vlcpctl.state/1"
_MOST_BYTES = 1 << 28
RESTORE = "; restore it from a backup"
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


@dataclass(frozen=True)
class Match:
    """How often a model scores a pair above the same image with another pair's caption, in percent.

    Where images have several captions, above the same caption with another image. `error` is the
    standard error over `images`; a model that cannot tell has 50.
    """

    value: float
    error: float
    images: int

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval."""
        return self.value - margin_of(self.error)

    def __str__(self) -> str:
        high = self.value + margin_of(self.error)
        return f"{self.value:.1f} % (95 % {self.low:.1f} to {high:.1f})"


@dataclass(frozen=True)
class Learned:
    """The scores on the test images of a week before and after its training, in percent.

    `low` and `high` are the ends of the 95 % interval of what was learned, None without ranks.
    """

    before: float
    after: float
    images: int | None = None
    low: float | None = None
    high: float | None = None

    @property
    def points(self) -> float:
        """What was learned, in points."""
        return self.after - self.before

    def __str__(self) -> str:
        ends = "" if self.low is None else f" (95 % {self.low:.1f} to {self.high:.1f})"
        return f"{self.points:+.1f} points{ends}"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A week as it was made, or the start (week 0)."""

    id: int
    key: str  # an id of what decides its training: parent, data, settings, deletions
    week: int
    parent: int = 0
    data: str  # an id of the content of NEW_DATA; of the start, of what --init named
    names: tuple[str, ...]  # of NEW_DATA
    settings: Sections
    files: dict[str, str] = field(default_factory=dict)  # digests of --method-file, by path
    guards: dict[str, str] = field(default_factory=dict)  # ids of the tasks it is judged on
    evaluation: str = ""  # an id of what it is evaluated on outside the stream
    measured: tuple[str, ...] = ()  # guards that the start is first evaluated on in it
    left_out: tuple[str, ...] = ()  # ids of the deletions whose pairs are left out
    again: int = 0  # the attempt whose task it is made from; 0: from NEW_DATA
    status: str = MAKING
    counted: bool = False  # whether it is, or was, in the head
    draw: int = 0  # of its trainings, the one that counts
    lost: tuple[tuple[dict[str, Any], ...], ...] = ()  # the verdicts of those before it
    verdicts: tuple[dict[str, Any], ...] = ()
    match: Match | None = None  # of its test pairs, by the accepted model
    learned: Learned | None = None
    warnings: tuple[str, ...] = ()
    checkpoint: str = ""  # the content id of what is deployed
    pairs: int = 0  # images, those held out included
    dropped: Counts = field(default_factory=dict)  # pairs left out, by reason and list
    seconds: dict[str, float] = field(default_factory=dict)  # of each command
    judged: str = ""  # when
    hook: int | None = None  # the exit code of the hook for its verdict
    reason: str | None = None

    @property
    def has_data(self) -> bool:
        """Whether it has pairs and a buffer: a week, or a start with --buffer-from."""
        return self.week > 0 or len(self.names) > 1

    @property
    def outcome(self) -> str:
        """The verdict in words, such as "accepted, not resolved"."""
        if self.status == MAKING:
            return "not finished"
        return in_words(self.found(), accepted=self.status == PASSED)

    def found(self) -> list[Verdict]:
        """Its verdicts. Raises BadInput if one lacks a field or has one of another type."""
        return [Verdict.read(one, "state.json") for one in self.verdicts]

    @property
    def against(self) -> list[str]:
        """A sentence for each condition that rejects it, with the value that was found."""
        return [one.sentence() for one in self.found() if one.holds]


class State:
    """A state directory. `root` is used as it was given, so that lines stay relative."""

    def __init__(self, root: Path, observe: Observe = lambda _: None) -> None:
        self.root, self.observe = root, observe
        self.attempts: dict[int, Attempt] = {}
        self.counting: tuple[int, ...] = ()  # the attempts of the head
        self.event: dict[str, Any] = {"number": 0}
        self._verified: set[Path] = set()

    @classmethod
    def read(cls, root: Path, observe: Observe = lambda _: None) -> Self:
        """The state in a directory.

        Raises BadInput if there is none, it was changed since it was written, or 0.3 wrote it.
        """
        path = root / "state.json"
        if not path.is_file():
            what = "is not a state directory" if root.exists() else "does not exist"
            raise BadInput(f"{root} {what}; --init starts one")
        found = read_json_object(path, most_bytes=_MOST_BYTES)
        if found.get("schema") == _SCHEMA_0_3:
            raise BadInput(_after_0_3(root, found))
        if found.get("schema") != SCHEMA:
            raise BadInput(
                f"{path} has schema {found.get('schema')!r:.80}; this version reads {SCHEMA}"
            )
        check_seal(path, found, RESTORE)
        state = cls(root, observe)
        attempts = converted(found.get("attempts"), tuple[Attempt, ...], path)
        state.attempts = {one.id: one for one in attempts}
        state.counting = converted(found.get("head"), tuple[int, ...], path)
        state.event = converted(found.get("event"), dict[str, Any], path)
        weeks = [state.attempts[one].week for one in state.counting if one in state.attempts]
        if weeks != list(range(len(state.counting))):
            raise BadInput(f"{path}: the head has no start, or not each week{RESTORE}")
        return state

    def save(self) -> None:
        """Replace state.json."""
        every = [asdict(one) for one in self.attempts.values()]
        body = {"head": list(self.counting), "attempts": every, "event": self.event}
        made_by = {"version": vlcpctl.__version__, "time": now()}
        record = {"schema": SCHEMA, **body, SEAL: seal_of(body), "made_by": made_by}
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        with new_part(self.root / "state.json") as temporary:
            temporary.write_text(text, encoding="utf-8")

    def change(self, action: str, attempt: Attempt | None = None, **more: Any) -> None:
        """Save the state together with what was done, and complete the change."""
        about = {} if attempt is None else {"attempt": attempt.id, "week": attempt.week}
        who = {"time": now(), "user": str(os.getuid()), "host": socket.gethostname()}
        with suppress(KeyError, OSError):  # of a container without names
            who["user"] = getpass.getuser()
        given = {name: one for name, one in more.items() if one not in (None, "", [], {})}
        number = self.event["number"] + 1
        self.event = {"number": number, **who, "action": action, **about, **given}
        self.observe(f"before {action}")
        self.save()
        self.observe(f"saved {action}")
        self.complete()

    def complete(self) -> None:
        """Write what the last change sets into update.toml, then add its event; or both are there.

        Raises BadInput if events.ndjson has later ones.
        """
        path = self.root / "events.ndjson"
        events, size = read_events(path)
        last = events[-1]["number"] if events else 0
        if last > self.event["number"]:
            raise BadInput(
                f"{path} ends with event {last}, and state.json with {self.event['number']}: they "
                "are not of one time; restore both from the same backup"
            )
        if last == self.event["number"]:
            return
        if "changes" in self.event:
            write_settings(self.root / "update.toml", self.event["changes"])
            self.observe("set")
        text = json.dumps(self.event, ensure_ascii=False) + "\n"
        with naming_output(path), path.open("ab") as file:
            file.truncate(size)  # without the part of a line that a kill left
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        sync(self.root)
        self.observe(f"after {self.event['action']}")

    def head(self) -> list[Attempt]:
        """The start and the accepted weeks, in order."""
        return [self.attempts[one] for one in self.counting]

    @property
    def last(self) -> int:
        """The number of the last accepted week; 0 is the start."""
        return max(len(self.counting) - 1, 0)

    def with_key(self, key: str) -> Attempt | None:
        """The attempt that was made for the same training, if there is one."""
        return next((one for one in self.attempts.values() if one.key == key), None)

    def begin(self, attempt: Attempt) -> Attempt:
        """Record a new attempt, and make its directory; `id` is given here."""
        made = replace(attempt, id=max(self.attempts, default=0) + 1)
        self.attempts[made.id] = made
        self.change("started", made, data=list(made.names), reason=made.reason)
        self.place(made).mkdir(parents=True, exist_ok=True)
        return made

    def put(self, attempt: Attempt) -> Attempt:
        """Save an attempt as it is now, without an event."""
        if self.attempts[attempt.id] != attempt:
            self.attempts[attempt.id] = attempt
            self.save()
        return attempt

    def count(self, action: str, attempts: list[Attempt], **more: Any) -> None:
        """Let these be the start and the accepted weeks, in one change.

        What a week published that is the last one again is published again.
        """
        for one in attempts:
            self.attempts[one.id] = replace(self.attempts[one.id], counted=True)
        if (last := attempts[-1].id) not in self.counting[-1:]:
            self.attempts[last] = replace(self.attempts[last], hook=None)
        self.counting = tuple(one.id for one in attempts)
        self.change(action, attempts[-1], **more)

    def place(self, attempt: Attempt) -> Path:
        """The directory of an attempt."""
        return self.root / "attempts" / f"{attempt.id:04d}"

    def made(self, attempt: Attempt, name: str) -> Path:
        """What the training that counts has made: checkpoint, buffer, rows, ranks or report."""
        return self.place(attempt) / f"draw-{attempt.draw}" / name

    def page(self, attempt: Attempt) -> Path:
        """The page of a week, beside its report."""
        return self.made(attempt, "report") / "week.html"

    def trained(self, attempt: Attempt) -> Path:
        """The checkpoint as it was trained: that which is deployed, if nothing is merged."""
        is_merged = attempt.settings["update"].get("deploy", "latest") != "latest"
        return self.made(attempt, TRAINED if is_merged and attempt.week else "checkpoint")

    def task(self, attempt: Attempt) -> Path:
        """The only task of an attempt; of the start, that of --buffer-from."""
        name = f"week-{attempt.week:04d}" if attempt.week else EARLIER
        return self.place(attempt) / "stream" / f"00-{name}"

    def trimmed(self, attempt: Attempt) -> Path:
        """The file that marks an attempt without weights and pairs; it has the keys of these."""
        return self.place(attempt) / "trimmed.parquet"

    def known(self, attempt: Attempt) -> Path:
        """What has the keys of an attempt: its task, or if it is trimmed, their list."""
        trimmed = self.trimmed(attempt)
        return trimmed if trimmed.exists() else self.task(attempt)

    @property
    def embeddings(self) -> Path:
        """The embeddings of the guards by the start, the last week and that of the index."""
        return self.root / "embeddings"

    @property
    def hidden(self) -> Output:
        """The hidden directory, inside the real directory: that may be a mounted volume."""
        return Output(self.root, inside=True)

    def discard(self, path: Path) -> None:
        """Remove what is below the root: it is gone at once, or it is still whole."""
        if os.path.lexists(path):
            grave = self.hidden.writing
            path.rename(grave)
            remove(grave)

    def verify(self, attempt: Attempt) -> None:
        """Raise BadInput unless its checkpoints have the bytes that they were made with."""
        deployed = self.made(attempt, "checkpoint")
        for path in {deployed, self.trained(attempt)} - self._verified:
            found = CheckpointManifest.read(path)
            if path == deployed and found.content != attempt.checkpoint:
                raise BadInput(
                    f"{path} is checkpoint {found.content[:12]}, and state.json lists "
                    f"{attempt.checkpoint[:12]}{RESTORE}"
                )
            verify_files(path, found.digests, advice=RESTORE, use_cache=False)
            self._verified.add(path)

    def point(self) -> None:
        """Let `current` be a link to the checkpoint of the last accepted attempt, verified here.

        What stands in its way is renamed. Where the file system has no links, there is none, which
        is said.
        """
        if not self.counting:
            return
        last, current = self.attempts[self.counting[-1]], self.root / "current"
        self.verify(last)
        target = self.made(last, "checkpoint")
        if self.fault_of_current() is None:
            return
        is_ours = current.is_symlink() and current.readlink().parts[0] == "attempts"
        if os.path.lexists(current) and not is_ours:
            names = (f"current.old{number or ''}" for number in range(1000))
            aside = next(self.root / one for one in names if not os.path.lexists(self.root / one))
            current.rename(aside)
            say(f"{current} was not the link that update makes, and is now {aside}")
        temporary = self.hidden.writing
        try:
            temporary.symlink_to(target.relative_to(self.root))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            say(f"{current} is not made: this file system has no links; deploy {target}")
            return
        temporary.replace(current)  # never a moment without a link
        sync(self.root)
        self.observe("pointed")

    def events(self) -> list[dict[str, Any]]:
        """What was done, in order. Raises BadInput for a line that cannot be read."""
        return read_events(self.root / "events.ndjson")[0]

    def fault_of_current(self) -> str | None:
        """What `current` is, if it is not the link to the last accepted checkpoint."""
        current = self.root / "current"
        if not self.counting:
            return None
        target = self.made(self.attempts[self.counting[-1]], "checkpoint")
        if not os.path.lexists(current):
            return f"{current} is missing; it should lead to {target}"
        if os.path.realpath(current) == os.path.realpath(target):
            return None
        what = f"a link to {current.readlink()}" if current.is_symlink() else "no link"
        return f"{current} is {what}, not the link to {target}"


@contextmanager
def opened(
    root: Path, observe: Observe = lambda _: None, *, starts: bool = False
) -> Iterator[State]:
    """The state in a directory, locked, after what a killed call left was completed.

    If the block ends without an error, `current` is what the state says. With `starts`, there may
    be none yet. Raises as `State.read` does.
    """
    if not starts or is_state(root):
        State.read(root)  # before a lock is made in what is not a state directory
    with naming_output(root), Output(root, inside=True).locked():
        state = State.read(root, observe) if is_state(root) else State(root, observe)
        for place in ("", "attempts/*/", "attempts/*/draw-*/"):
            for left in root.glob(f"{place}.*.tmp-*"):
                left.unlink()
        state.complete()
        yield state
        state.point()


def is_state(path: Path) -> bool:
    """Whether a path is a state directory, also one of 0.3."""
    return (path / "state.json").is_file()


def has_pairs(state: State, attempt: Attempt) -> bool:
    """Whether pairs to train on are left of an attempt."""
    with suppress(BadInput):
        train = read_task(state.task(attempt)).splits.get("train")
        return train is not None and train.images > 0
    return False


def read_events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The events in a file, and after how many bytes the last whole line ends.

    Raises BadInput for a line that cannot be read.
    """
    if not path.exists():
        return [], 0
    whole = path.read_bytes().split(b"\n")[:-1]
    found = []
    for number, line in enumerate(whole, 1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise BadInput(f"{path}:{number} is not readable JSON: {error}{RESTORE}") from error
        if not isinstance(event, dict) or not isinstance(event.get("number"), int):
            raise BadInput(f"{path}:{number} is not an event{RESTORE}")
        found.append(event)
    return found, sum(len(line) + 1 for line in whole)


def relative_to_root(root: Path, path: str) -> str:
    """A path to record: relative to the state directory, so that both can be moved together.

    Of what is in an object store, it is the URL.
    """
    if is_stored(path):
        return shown(path)
    return os.path.relpath(os.path.realpath(path), os.path.realpath(root))


def shown_path(root: Path, recorded: str) -> Path:
    """A recorded path as lines have it: relative if it is below the current directory.

    Of a URL, it is where the cache has what was listed.
    """
    if protocol_of(recorded) is not None:
        return place_of(recorded)
    whole = Path(os.path.normpath(Path(os.path.realpath(root)) / recorded))
    here = Path.cwd()
    near = whole.relative_to(here) if whole.is_relative_to(here) else whole
    return whole if str(near).startswith("-") else near  # which no line takes for an option


def require_free(root: Path) -> None:
    """Raise OutputExists if a state cannot be started in a directory: it has other files."""
    hidden = Output(root, inside=True)
    own = {"lost+found", "deleted", *([hidden.hidden.name] if hidden.is_ours() else [])}
    is_free = not os.path.lexists(root) or (
        root.is_dir()
        and all(x.name in own or x.name.startswith(".state.json.tmp-") for x in root.iterdir())
    )
    if not is_free and not is_state(root):
        raise OutputExists(
            f"{root} already exists and is not a state directory; choose another --state"
        )


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _after_0_3(root: Path, found: Mapping[str, Any]) -> str:
    """What to do with a state of 0.3: the line that starts another one from its last week."""
    weeks, settings = len(found.get("weeks") or ()), found.get("settings") or {}
    last = root / (f"weeks/{weeks:04d}" if weeks else "start")
    new = root.with_name(f"{root.name}-2")
    words = ["vlcpctl", "update", "NEW_DATA", "--state", new, "--init", last / "checkpoint"]
    words += ["--buffer-from", last / "buffer"] if (last / "buffer").is_dir() else []
    for guard in settings.get("guards") or ():
        words += ["--guard", shown_path(root, guard["path"])]
    for recorded in settings.get("classes") or ():
        kind, _, word = recorded.partition(":")
        words += ["--guard-classes", shown_path(root, word) if kind == "path" else word]
    line = shlex.join(map(str, words))
    if (root / "deleted").is_dir():
        copied = shlex.join(["cp", "-r", str(root / "deleted"), str(new)])
        line = f"mkdir {shlex.quote(str(new))} && {copied} && {line}"
    return f"{root} is a state of version 0.3; another one continues from it: {line}"
