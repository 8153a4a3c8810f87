"""A week of a model in production: made by command lines, judged, and then accepted or rejected.

To make a week is to find or to make its attempt, and to judge it; to accept, to redo and to roll
back are one change of the head each. What a kill leaves is an attempt that the same call finds
again, and command lines that resume.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import (
    BadInput,
    GateFailed,
    HookFailed,
    Interrupted,
    OutputExists,
    UsageError,
    VlcpError,
    missing,
    some_names,
)
from vlcpctl.core.words import printable
from vlcpctl.data.splitting.leaving_out import Counts, read_stop_list
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion.receipt import unfinished_under
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import converted
from vlcpctl.files.manifest import content_of as content_at
from vlcpctl.files.manifest import read_manifest
from vlcpctl.jobs.runner import JobRunner
from vlcpctl.jobs.script import CommandLine
from vlcpctl.methods.plugins.method_file import load_method_file
from vlcpctl.production.changes import doubts, judge_match, learned, match_of, warnings_of
from vlcpctl.production.data import all_left_out, content_of, described, known_pairs, list_urls
from vlcpctl.production.guards import find_guards, guard_ids, require_unchanged, say_sights
from vlcpctl.production.hooks import ACCEPT, REJECT, run_hook
from vlcpctl.production.keep import keep
from vlcpctl.production.leaks import refuse_leaks
from vlcpctl.production.lines import Lines, is_imported, stop_lists
from vlcpctl.production.options import UpdateOptions, week_number
from vlcpctl.production.page import PAGE, write_page
from vlcpctl.production.second import write_second_seed
from vlcpctl.production.settings import (
    NEW,
    Settings,
    given_by,
    names_of,
    read_settings,
    urls_of,
    with_given,
)
from vlcpctl.production.state import (
    MAKING,
    PASSED,
    REJECTED,
    Attempt,
    Observe,
    Sections,
    State,
    has_pairs,
    now,
    opened,
    relative_to_root,
    require_free,
)
from vlcpctl.report.write import check_junit_path, write_junit

_WITHOUT_MODEL = frozenset({"split", "forgetting-report"})
_REPORT, _REJECTED, _UNDEFINED = "forgetting-report", 7, 3  # and its exit codes
_SIGNAL = 128  # and the number of the signal: the exit code of a line that it stopped
_EVALUATION = ("guard", "guard-classes", "data", "distractors", "index-week", "sample")


class LineFailed(VlcpError):
    """A command line of the update failed; its exit code becomes that of the update."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class RunLines(Protocol):
    """Runs command lines; `run_lines` but for tests."""

    def __call__(self, lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
        """Run the lines one after the other; the first that failed, with its exit code."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The week that a call made, accepted now or earlier, or rejected."""

    attempt: Attempt
    checkpoint: Path
    page: Path
    dropped: Counts  # pairs left out, by reason and list
    hook: int | None = None  # the exit code of --on-accept or --on-reject, if it was run

    @property
    def accepted(self) -> bool:
        """Whether it counts."""
        return self.attempt.status == PASSED

    def as_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        made = self.attempt
        return {
            "week": made.week,
            "accepted": self.accepted,
            "outcome": made.outcome,
            "attempt": made.id,
            "checkpoint": str(self.checkpoint),
            "content": made.checkpoint,
            "report": str(self.page.parent),
            "verdicts": list(made.verdicts),
            "lost": [list(one) for one in made.lost],
            "warnings": list(made.warnings),
            "left_out": self.dropped,
        }

    def refuse(self) -> None:
        """Raise HookFailed if a hook failed, and GateFailed if the week was rejected."""
        week = self.attempt.week
        if self.hook:
            which = ACCEPT if self.accepted else REJECT
            raise HookFailed(
                f"week {week} is {which}ed, and stays so, but --on-{which} ended with exit code "
                f"{self.hook}; the same command runs it again"
            )
        if not self.accepted:
            raise GateFailed(
                f"week {week} is rejected: {'; '.join(self.attempt.against)}; see {self.page}"
            )


def update(
    request: UpdateOptions, run: RunLines, observe: Observe = lambda _point: None
) -> Outcome:
    """Make the next week from new data, and accept or reject it.

    Data that were accepted before are not trained on again. `observe` is called at the points
    between which a kill matters. Raises LineFailed, or BadInput for a state
    that cannot be read.
    """
    require_free(request.state)
    with opened(request.state, observe, starts=request.init is not None) as state:
        return Call(state, request, run).update()


def redo(
    request: UpdateOptions, run: RunLines, observe: Observe = lambda _point: None
) -> list[Outcome]:
    """Make a week again, and those after it; the last outcome may be rejected.

    Raises UsageError if there is no such week, and what `update` raises.
    """
    with opened(request.state, observe) as state:
        return Call(state, request, run).redo(str(request.redo))


def rollback(request: UpdateOptions, observe: Observe = lambda _point: None) -> Path:
    """Make a week, or the start (0), the last accepted one again; returns its checkpoint.

    The settings become those of the week. Raises UsageError if there is no such week, and BadInput
    if its weights have changed; then nothing has changed.
    """
    with opened(request.state, observe) as state:
        head, week = state.head(), int(request.rollback or 0)
        require_week(state, week)
        if week < state.last:
            changes = _changes(read_settings(state.root), head[week].settings)
            weeks, why = [*range(week + 1, len(head))], request.reason
            state.count("rolled back", head[: week + 1], weeks=weeks, changes=changes, reason=why)
        keep(state)
        return state.made(state.head()[-1], "checkpoint")


def require_week(state: State, week: int) -> None:
    """Raise UsageError unless a week was accepted and is whole; BadInput if its weights changed."""
    if not 0 <= week <= state.last:
        raise UsageError(f"--rollback {week}: {state.root} has weeks 0 to {state.last}")
    _require_whole(state, week, f"--rollback {week}")
    state.verify(state.head()[week])


def dry_run(request: UpdateOptions) -> Iterator[str]:
    """The lines of the update as `vlcpctl batch` takes them; other steps are comments.

    Nothing is written, and no data are read.
    """
    require_free(request.state)
    exists = request.init is None or (request.state / "state.json").is_file()
    state = State.read(request.state) if exists else State(request.state)
    call = Call(state, request, run_lines)
    if request.redo is not None:
        first, todo = call.weeks_of(str(request.redo))
        yield f"# {some_names([f'week {one.week}' for one in todo])} again, from week {first - 1}"
        head = call.check_redo(first, request.redo)
        data: list[str] = [str(state.task(todo[0]))]
    else:
        head, data = state.head(), list(request.sources)
        if not head:
            start = call.new(0, "", (str(request.init), *request.buffer_from), [])
            start = replace(start, id=max(state.attempts, default=0) + 1)
            state.attempts[start.id] = start
            yield "# the start"
            if not is_imported(str(request.init)):
                copied = ["cp", "-a", str(request.init), str(state.made(start, "checkpoint"))]
                yield f"# {shlex.join(copied)}"
            yield from map(str, call.lines([], start, request.buffer_from).of_start())
            head = [start]
        call.check(state.head())
    number = max(state.attempts, default=0) + 1
    made = replace(call.new(len(head), "", (), head), id=number)
    yield f"# week {made.week}"
    yield from map(str, call.lines(head, made, data).of_week())
    yield f"# if the last line exits with 0, week {made.week} is accepted; with 7, it is rejected"
    yield "# not checked: whether the data are new, have test images, or were made before"


class Call:
    """A call of `update` on an open state, and the settings that hold for it."""

    def __init__(self, state: State, request: UpdateOptions, run: RunLines) -> None:
        self.state, self.request, self.run = state, request, run
        self.given = given_by(request)
        before: Mapping[str, Mapping[str, Any]] = NEW
        if state.counting:
            before = read_settings(state.root)
        elif request.init is None:
            raise UsageError(f"{state.root} is not a state directory; --init CHECKPOINT starts one")
        own = {} if state.counting else {"run": self._run_name()}
        own |= self.given.get("update", {})
        own |= {} if request.cache is None else {"cache": str(request.cache)}
        sections = with_given(before, {**self.given, "update": own})
        before = before if state.counting else {}
        self.changes = _changes(before, sections)
        self.settings = Settings(sections, tuple(request.method_file))

    def _run_name(self) -> str:
        """The name of the run in rows: that of the state directory.

        A start that was trained under the same name would make the weeks continue its run, whose
        rows are not here.
        """
        name = printable(self.state.root.resolve().name).strip() or "update"
        init = str(self.request.init)
        made = None if is_imported(init) else CheckpointManifest.read(Path(init))
        return f"{name}-updates" if made is not None and made.tasks and made.run == name else name

    def update(self) -> Outcome:
        """Make the start, if there is none, and the next week."""
        state, request = self.state, self.request
        self._require_start()
        self.check(state.head())
        data = list(request.sources)
        content = content_of(data, self.settings, state)
        known = next((one for one in state.head()[1:] if one.data == content), None)
        if known is not None:
            return self._accepted_before(known)
        if not state.counting:
            self._start()
            self.check(state.head())
        head = state.head()
        made = self.new(len(head), content, names_of(data), head)
        self._require_reason(content)
        lines = self.lines(head, made, data)
        if counts := all_left_out(data, self.settings, state.root, lines.left_out()):
            return self._nothing_new(counts)
        made = self.make(head, made)
        if made.status == PASSED:
            self._require_same_deletions(made)
            self._count("accepted", [*head, made])
            how = made.outcome if made.verdicts else "accepted unjudged: no --fail-if is set"
            say(f"{state.root}: week {made.week} is {how}; its page is {self._page(made)}")
        return self._outcome(made)

    def redo(self, word: str) -> list[Outcome]:
        """Make weeks again from their pairs; if all pass, they replace those that they are."""
        state = self.state
        first, todo = self.weeks_of(word)
        if self._are_made(first, todo):
            if others := _names_of_changes(self.changes):
                raise OutputExists(
                    f"these weeks are made so already, so that {', '.join(others)} would not be "
                    "applied: give it with the data of the next week"
                )
            say(f"{state.root}: these weeks are made so already")
            keep(state)
            return [self._outcome(state.head()[-1])]
        head = self.check_redo(first, word)
        outcomes = []
        for old in todo:
            if not has_pairs(state, old):
                say(f"{state.place(old)} has no pair for training left, and is not made again")
                continue
            made = self.new(len(head), old.data, old.names, head, again=old)
            data = [str(state.task(old))]
            if all_left_out(
                data, self.settings, state.root, self.lines(head, made, data).left_out()
            ):
                raise UsageError(f"all pairs of {state.place(old)} are accepted, or were deleted")
            made = self.make(head, made, old)
            outcomes.append(self._outcome(made, hooks=made.status != PASSED))
            if made.status != PASSED:
                say(f"nothing in {state.root} is replaced")
                return outcomes
            self._require_same_deletions(made)
            head.append(made)
        if not outcomes:
            raise UsageError(f"--redo {word}: there is no pair to train on left")
        self._count("redone", head)
        return [*outcomes[:-1], self._outcome(state.head()[-1])]

    def make(self, head: list[Attempt], wanted: Attempt, source: Attempt | None = None) -> Attempt:
        """The judged attempt for the week after `head`: found, continued or made.

        `source` is the attempt whose pairs it has; without one, they are the new data.
        """
        state = self.state
        found = state.with_key(wanted.key)
        if found is not None and self.request.force and found.id not in state.counting:
            state.discard(state.place(found))
            found = state.put(replace(wanted, id=found.id))
        if found is None:
            self._warn_of_rejected(wanted)
            made = state.begin(wanted)
        elif found.id in state.counting or self._is_made(found, wanted):
            counts = found.id in state.counting  # then it was not made by this call
            return found if counts else state.put(replace(found, settings=wanted.settings))
        else:
            made = self._again(found, wanted)
        state.place(made).mkdir(parents=True, exist_ok=True)
        data: Sequence[str] | None = self.request.sources
        if made.again:
            data = [str(state.task(state.attempts[made.again]))]
        elif source is not None:
            data = None  # it has them
        say(f"{state.root}: making week {made.week} from {', '.join(made.names)}")
        while True:
            lines = self.lines(head, made, data)
            judged = self._judged(lines)
            if judged.status != MAKING:
                return judged
            made = judged

    def new(
        self,
        week: int,
        content: str,
        names: tuple[str, ...],
        head: Sequence[Attempt],
        again: Attempt | None = None,
    ) -> Attempt:
        """The attempt that the settings ask for; it is not recorded, and has no number."""
        settings = self.settings
        if again is not None:  # pairs keep their split
            kept = {**settings.sections, "split": again.settings["split"]}
            settings = Settings(kept, settings.files)
        guards = find_guards(self.state.root, settings)
        files = {relative_to_root(self.state.root, str(one)): one for one in settings.files}
        digests = {name: load_method_file(path).digest for name, path in files.items()}
        left_out = [read_stop_list(one).content for one in stop_lists(self.state, settings)]
        reference = settings.own("reference")
        deciding = {
            "parent": head[-1].id if head else 0,
            "data": content,
            "settings": settings.decisive(),
            "files": sorted(digests.values()),
            "reference": None if reference is None else guards[reference],
            "guards": sorted(guards.values()) if settings.own("drop-leaks") else None,
            "left_out": sorted(left_out),
        }
        known = {one for attempt in head for one in attempt.measured}
        ids = guard_ids(self.state.root, settings)
        judged_on = [settings.own(name) for name in _EVALUATION]
        return Attempt(
            id=0,
            key=content_id(deciding),
            week=week,
            parent=head[-1].id if head else 0,
            data=content,
            names=names,
            settings=settings.sections,
            files=digests,
            guards=guards,
            evaluation=content_id([guards, judged_on]),
            measured=tuple(one for one in ids if one not in known),
            left_out=tuple(left_out),
            again=again.id if again is not None else 0,
            reason=self.request.reason,
        )

    def lines(self, head: Sequence[Attempt], made: Attempt, data: Sequence[str] | None) -> Lines:
        """What makes the lines of an attempt."""
        return Lines(self.state, head, made, self.settings, self.request, data)

    def check(self, head: Sequence[Attempt]) -> None:
        """Raise UsageError, BadInput or OutputExists if the week after `head` cannot be made."""
        state, settings = self.state, self.settings
        list_urls(urls_of(settings.sections))
        settings.check()
        guards = find_guards(state.root, settings)
        receipt = unfinished_under(state.root)
        if receipt is not None:
            raise OutputExists(
                f"{receipt} is of a deletion in {state.root} that has not finished; run its "
                "'vlcpctl forget' again, and then the update"
            )
        if self.request.junit is not None:
            check_junit_path(self.request.junit, state.root)
        say_sights(state.root, settings, head[-1] if head else None)
        if not head:
            self._require_buffer(bool(self.request.buffer_from))
            return
        last = head[-1]
        require_unchanged(guards, last, self.given.get("update", {}).keys())
        if settings.own("run") != head[0].settings["update"]["run"]:
            raise UsageError(f"the run of {state.root} is {head[0].settings['update']['run']}")
        week = settings.index_week or 0
        if week >= len(head):
            raise UsageError(f"index-week {week}: {state.root} has weeks 0 to {len(head) - 1}")
        _require_whole(state, week, f"index-week {week}")
        self._require_same_buffer(last)
        self._require_buffer(last.week > 0 or state.made(last, "buffer").exists())
        for one in {head[0].id, last.id, head[week].id}:
            state.verify(state.attempts[one])
        lost = _left_out_of(last.settings, settings)
        if lost:
            warn(
                f"this week is not judged by {', '.join(lost)}: an option that is given again "
                "replaces all of its earlier values; repeat those that should stay"
            )

    def _require_start(self) -> None:
        """Raise UsageError if --init or --buffer-from is not what the state was started with."""
        request = self.request
        if not self.state.counting or request.init is None:
            return
        start = self.state.head()[0]
        init, *earlier = start.names
        is_same = init == request.init or start.data == _source(request)
        if not is_same or list(request.buffer_from) not in ([], earlier):
            raise UsageError(
                f"{self.state.root} was started with --init {init} and --buffer-from "
                f"{some_names(earlier) or 'nothing'}; leave these out, or choose another --state"
            )

    def _start(self) -> None:
        """Make what is missing of the start, and let it count."""
        state, request = self.state, self.request
        for data in request.buffer_from:
            if not Path(data).exists():
                raise BadInput(f"--buffer-from {missing(data)}")
        init = str(request.init)
        if not request.buffer_from:
            warn(
                f"{state.root} starts without --buffer-from: the first week replays nothing that "
                "the model has learned before, and may lose it"
            )
        state.root.mkdir(parents=True, exist_ok=True)
        wanted = self.new(0, _source(request), (init, *request.buffer_from), [])
        earlier = (
            content_of(request.buffer_from, self.settings, state) if request.buffer_from else ""
        )
        wanted = replace(wanted, key=content_id([wanted.key, earlier, request.model]))
        made = state.with_key(wanted.key) or state.begin(wanted)
        say(f"{state.root}: making the start")
        checkpoint = state.made(made, "checkpoint")
        if not is_imported(init) and not checkpoint.exists():
            _copy(Path(init), checkpoint, state)
        lines = self.lines([], made, list(request.buffer_from))
        failed = self._run(lines, lines.of_start())
        if failed is not None:
            line, code = failed
            raise LineFailed(
                f"the start is not made: line {line.number}, {line.words[0]}, ended with code "
                f"{code}; {_what_to_do(code)}",
                code,
            )
        content = CheckpointManifest.read(checkpoint).content
        if not is_imported(init) and content != wanted.data:
            raise BadInput(f"{init} has changed while it was being copied; try again")
        made = state.put(
            replace(
                state.attempts[made.id],
                settings=wanted.settings,
                guards=wanted.guards,
                measured=wanted.measured,
                checkpoint=content,
                status=PASSED,
            )
        )
        state.count("start", [made], changes=self.changes)
        state.point()
        self.changes = {}

    def _judged(self, lines: Lines) -> Attempt:
        """The attempt once its lines have run and it is judged; not finished: to be trained again.

        A rejected training that did not clearly lose more than a bound is made once more, and the
        mean of both is judged.
        """
        state, made = self.state, lines.made
        todo = lines.of_week()
        state.discard(state.made(made, "report"))  # conditions may differ
        failed = self._run(lines, todo[:-1])
        if failed is None:
            write_second_seed(lines)
            failed = self._run(lines, todo[-1:])
        made = state.attempts[made.id]
        if failed is not None and (failed[0].words[0], failed[1]) != (_REPORT, _REJECTED):
            raise LineFailed(self._why_failed(lines, *failed), failed[1])
        path = state.made(made, "report")
        stream = read_stream(state.place(made) / "stream")
        verdicts = converted(
            read_manifest(path, "report")["verdicts"], tuple[dict[str, Any], ...], path
        )
        verdicts += tuple(judge_match(made.match, self.settings))
        is_rejected = failed is not None or any(one["holds"] for one in verdicts)
        judged = replace(
            made,
            status=REJECTED if is_rejected else PASSED,
            verdicts=verdicts,
            learned=learned(lines),
            checkpoint=CheckpointManifest.read(state.made(made, "checkpoint")).content,
            pairs=sum(split.images for split in stream.totals.values()),
            dropped=stream.left_out,
            judged=now(),
        )
        if self.request.junit is not None and self.settings.match_gates:
            write_junit(judged.found(), self.request.junit)  # the report has not this one
        if is_trained_again(judged, int(self.settings.own("retries", 0))):
            say(
                f"{state.root}: week {made.week} is rejected, not clearly: "
                f"{'; '.join(judged.against)}; it is trained once more, with other draws"
            )
            lost = (*made.lost, verdicts)
            made = replace(made, draw=made.draw + 1, lost=lost, verdicts=(), status=MAKING)
            state.attempts[made.id] = made
            state.change("trained again", made)
            return made
        return self._recorded(lines, made, judged)

    def _recorded(self, lines: Lines, before: Attempt, judged: Attempt) -> Attempt:
        """The judged attempt with its warnings and page; that it is rejected is an event, once."""
        state, lines = self.state, replace(lines, made=judged)
        judged = replace(judged, warnings=tuple(warnings_of(lines)))
        for line in write_page(replace(lines, made=judged)):
            say(line)
        for text in judged.warnings if self.request.quiet else ():  # else the lines have them
            warn(f"week {judged.week}: {text}")
        self._say_left_out(lines)
        same = ("status", "verdicts", "checkpoint", "warnings")
        if all(getattr(before, name) == getattr(judged, name) for name in same):
            return before
        judged = replace(judged, hook=None)
        if judged.status != REJECTED:
            return state.put(judged)
        state.attempts[judged.id] = judged  # saved together with its event
        state.change("rejected", judged, against=judged.against, reason=judged.reason)
        return judged

    def _run(self, lines: Lines, todo: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
        """Run lines one by one, with a look for leaks after the split; the one that failed."""
        state, number = self.state, lines.made.id
        for line in todo:
            state.observe(f"line {line.number}")
            began, name = time.monotonic(), line.words[0]
            if name == "train-step":
                found = match_of(lines)
                if found is None and self.settings.match_gates:
                    raise BadInput(
                        f"{lines.state.task(lines.made)} has fewer than two test images, so that "
                        "week_match is not known: hold out more, or leave out that --fail-if"
                    )
                state.put(replace(state.attempts[number], match=found))
                for text in doubts(found, lines.head):
                    warn(f"week {lines.made.week}: {text}")
            failed = self.run([line])
            made = state.attempts[number]
            took = made.seconds.get(name, 0.0) + time.monotonic() - began
            state.put(replace(made, seconds={**made.seconds, name: round(took, 1)}))
            if failed is not None:
                return failed
            if name == "split":
                refuse_leaks(lines)
            state.observe(f"after line {line.number}")
        return None

    def _count(self, action: str, head: list[Attempt]) -> None:
        """Let these weeks count, with the settings of this call, and bound the disk."""
        state = self.state
        state.count(action, head, changes=self.changes, reason=self.request.reason)
        state.point()
        keep(state)

    def _is_made(self, found: Attempt, wanted: Attempt) -> bool:
        """Whether an attempt has passed by the same conditions, and is whole."""
        report = "forgetting-report"
        has_all = all(
            self.state.made(found, name).exists() for name in ("checkpoint", "buffer", "report")
        )
        is_same = found.evaluation == wanted.evaluation
        is_same = is_same and found.settings[report] == wanted.settings[report]
        return is_same and found.status == PASSED and has_all

    def _again(self, found: Attempt, wanted: Attempt) -> Attempt:
        """An attempt with the conditions of this call; rows of other guards are removed."""
        state = self.state
        if found.evaluation != wanted.evaluation:
            # Of a first training that was lost there would be no rows to take the mean with.
            found = replace(found, draw=0, lost=())
            for place in (state.place(found), *state.place(found).glob("draw-*")):
                for name in ("rows", "ranks", "report"):
                    state.discard(place / name)
        return state.put(
            replace(
                found,
                settings=wanted.settings,
                guards=wanted.guards,
                evaluation=wanted.evaluation,
                measured=wanted.measured,
                reason=wanted.reason or found.reason,
            )
        )

    def _are_made(self, first: int, todo: Sequence[Attempt]) -> bool:
        """Whether these weeks, with these settings, are those that count, and no others."""
        state, head = self.state, self.state.head()[:first]
        for old in todo:
            wanted = self.new(len(head), old.data, old.names, head, again=old)
            found = state.with_key(wanted.key)
            if found is None or found.id not in state.counting:
                return False
            head.append(found)
        return tuple(one.id for one in head) == state.counting

    def weeks_of(self, word: str) -> tuple[int, list[Attempt]]:
        """The weeks that --redo names, and the number that the first one gets.

        Those after a rolled-back one that were taken back with it follow it, and an attempt that
        was accepted, or made again, is its week. Raises UsageError if there is no such week, or
        its pairs are gone.
        """
        state, number = self.state, week_number(word)
        head, last = state.head(), state.last
        names = {f"attempts/{one.id:04d}": one for one in state.attempts.values() if one.week}
        named = names[word].id if word in names else -1
        number = next((x.week for x in head[1:] if named in (x.id, x.again)), number)
        if number is not None and 1 <= number <= last:
            return number, head[number:]
        others = [
            one
            for one in state.attempts.values()
            if one.week and one.status != MAKING and one.id not in state.counting
        ]
        names = {f"attempts/{one.id:04d}": one for one in others}
        found = names.get(word) or next((x for x in reversed(others) if x.week == number), None)
        if found is None:
            known = [*([f"weeks 1 to {last}"] if last else []), *names]
            raise UsageError(
                f"--redo {word}: {state.root} has no such week; it has {some_names(known)}"
            )
        if not (state.place(found) / "stream").exists():
            raise UsageError(f"--redo {word}: --keep has removed its pairs")
        todo = [found]
        while found.counted and (
            after := [x for x in others if x.parent == todo[-1].id and x.counted]
        ):
            todo.append(after[-1])
        return last + 1, todo

    def check_redo(self, first: int, word: str) -> list[Attempt]:
        """The head before the first week that is made again. Raises as `check` if it cannot be."""
        what, week = f"--redo {word}", self.settings.index_week
        if first <= self.state.last:
            if week is not None and week >= first:
                raise UsageError(
                    f"{what} replaces week {week}, whose model the index of users was built with: "
                    "--set update.index-week=0, or that of an earlier week"
                )
            for each in range(first - 1, self.state.last + 1):
                _require_whole(self.state, each, what)
        head = self.state.head()[:first]
        self.check(head)
        return head

    def _accepted_before(self, known: Attempt) -> Outcome:
        """The outcome of data that were accepted before."""
        given = with_given(known.settings, self.given)
        others = _names_of_changes(_changes(known.settings, given))
        why = f"{self.state.root}: this data is already accepted as week {known.week}"
        if others:
            raise OutputExists(
                f"{why}, so that {', '.join(others)} would not be applied; leave it out, or give "
                "it with the data of another week"
            )
        say(f"{why}; nothing is trained or judged again")
        if self.request.junit is not None:
            write_junit(known.found(), self.request.junit)
        keep(self.state)
        return self._outcome(known)

    def _nothing_new(self, counts: Counts) -> Outcome:
        """The outcome of data without a new pair: the last accepted week stays what it is."""
        total = sum(count for names in counts.values() for count in names.values())
        why = f"{self.state.root}: {described(counts, total)}: nothing is new, and no week is made"
        if others := _names_of_changes(self.changes):
            raise OutputExists(f"{why}, so that {', '.join(others)} would not be applied")
        say(why)
        if self.request.junit is not None:
            write_junit([], self.request.junit)
        last = replace(self.state.head()[-1], verdicts=(), warnings=(), lost=())
        return self._outcome(last, counts, hooks=False)

    def _outcome(
        self, made: Attempt, dropped: Counts | None = None, *, hooks: bool = True
    ) -> Outcome:
        """What to say of an attempt, after its hook was run if that is still to be done."""
        code = run_hook(self.state, self.request, made) if hooks else None
        return Outcome(
            attempt=made,
            checkpoint=self.state.made(made, "checkpoint"),
            page=self._page(made),
            dropped=made.dropped if dropped is None else dropped,
            hook=code,
        )

    def _page(self, made: Attempt) -> Path:
        return self.state.made(made, "report") / PAGE

    def _require_reason(self, content: str) -> None:
        """Refuse data that were rolled back, unless a reason is given to take them again."""
        taken = [
            one
            for one in self.state.attempts.values()
            if one.data == content and one.counted and one.id not in self.state.counting
        ]
        if taken and self.request.reason is None:
            last = taken[-1]
            raise OutputExists(
                f"this data was accepted as week {last.week} and rolled back; --reason TEXT makes "
                f"a week of it again, as does --redo attempts/{last.id:04d} without NEW_DATA"
            )

    def _require_same_deletions(self, made: Attempt) -> None:
        """Refuse to accept a week if pairs were deleted while it was made."""
        lists = stop_lists(self.state, self.settings)
        if tuple(read_stop_list(one).content for one in lists) != made.left_out:
            raise OutputExists(
                f"pairs were deleted while week {made.week} was made; run the same command again, "
                "which makes it without them"
            )

    def _require_buffer(self, has_buffer: bool) -> None:
        for method in self.settings.methods:
            if method.needs(first=False).buffer and not has_buffer:
                raise UsageError(
                    f"method {method.name} replays a buffer, which the first week does not have: "
                    "start with --buffer-from DATA, or use a method that needs none, such as ctp"
                )

    def _require_same_buffer(self, last: Attempt) -> None:
        """Raise UsageError if the last buffer cannot be updated with these settings."""
        path, now_ = self.state.made(last, "buffer"), self.settings
        if not path.exists():
            return
        buffer, before = open_task(path).buffer, last.settings
        size, sizes = before["buffer"]["size"], now_.sections["buffer"]["size"]
        pairs = {
            "buffer.policy": (buffer.policy, now_.policy),
            "update.seed": (before["update"].get("seed", 0), now_.own("seed", 0)),
            "buffer.size in %": (size.endswith("%"), sizes.endswith("%")),
            "stored features": (buffer.features is not None, now_.stores_features),
        }
        for name, (was, wanted) in pairs.items():
            if was != wanted:
                raise UsageError(
                    f"{name}: the buffer of {self.state.root} was made with {was}, not {wanted}, "
                    "which cannot change; keep it, or start another --state"
                )

    def _warn_of_rejected(self, wanted: Attempt) -> None:
        """Name the rejected weeks whose data are in no accepted week."""
        known = {wanted.data, *(one.data for one in self.state.head())}
        lost = {one.data: one for one in self.state.attempts.values() if one.status == REJECTED}
        found = [one for data, one in lost.items() if data not in known]
        found = [one for one in found if has_pairs(self.state, one)]
        for one in found if not wanted.again else ():
            warn(
                f"week {one.week} of {one.judged[:10]} ({', '.join(one.names)}) was rejected and "
                f"is in no later week; --redo attempts/{one.id:04d} trains it again"
            )

    def _say_left_out(self, lines: Lines) -> None:
        made, trains = lines.made, self.settings.own("known") == "train"
        known = known_pairs(self.state, lines.head, made) if trains else {}
        read = read_stream(self.state.place(made) / "stream").read
        if said := described({**made.dropped, **known}, read, trains_known=trains):
            say(f"{self.state.root}: week {made.week}: {said}")
        if lines.emptied:
            weeks = some_names([f"week {one}" for one in lines.emptied])
            warn(
                f"'vlcpctl forget' has removed all test pairs of {weeks}: metrics over all weeks, "
                "such as bwt_gem, are those of the other weeks"
            )

    def _why_failed(self, lines: Lines, line: CommandLine, code: int) -> str:
        state, made = self.state, lines.made
        which = f"line {line.number}, {line.words[0]}"
        said = f"week {made.week} is not accepted: {which}, ended with code {code}"
        if code == _UNDEFINED and line.words[0] == _REPORT:
            return (
                f"{said}: if a condition is undefined, run the same command with other conditions "
                "or with --set forgetting-report.undefined=pass, and the week is judged again"
            )
        task = state.task(made)
        if task.exists() and "test" not in read_task(task).splits:
            return (
                f"{said}: no image of this week is in split test; --holdout test=N holds out N "
                "images, or correct the column of --split-column"
            )
        return f"{said}; {_what_to_do(code)}"


def is_trained_again(judged: Attempt, retries: int) -> bool:
    """Whether a rejected training is made once more: other draws may lose less, unless it is clear.

    The mean of both is judged then. In a simulated year, that rejects as few good weeks as if both
    had to fail, and finds more bad ones.
    """
    return judged.status == REJECTED and judged.draw < retries and not judged.is_clear


def run_lines(lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
    """Run the lines in children of this process; raises LineFailed if a signal stopped them."""
    from vlcpctl.models.imports import preload

    if any(line.words[0] not in _WITHOUT_MODEL for line in lines):
        preload()
    runner = JobRunner(lines, 1, hides_outputs=True)  # only the checkpoint to deploy is printed
    runner.run()
    if runner.failed is None and runner.signal is not None:
        raise LineFailed(f"stopped by signal {runner.signal}", _SIGNAL + runner.signal)
    return runner.failed


def _changes(before: Mapping[str, Mapping[str, Any]], now_: Sections) -> Sections:
    """What update.toml gets: the values that differ, None for those that go."""
    found: Sections = {}
    for section, values in now_.items():
        was = before.get(section, {})
        for name in (*values, *(one for one in was if one not in values)):
            if was.get(name) != values.get(name):
                found.setdefault(section, {})[name] = values.get(name)
    return found


def _names_of_changes(changes: Sections) -> list[str]:
    """The options, sorted."""
    return sorted(f"--{name}" for values in changes.values() for name in values)


def _left_out_of(before: Sections, settings: Settings) -> list[str]:
    """What the last week was judged by and this one is not: conditions and guards.

    Another condition on the same metric leaves nothing out, and neither does `none` for all.
    """
    gates = {
        gate.partition(":")[0]: gate for gate in before["forgetting-report"].get("fail-if", [])
    }
    kept = {
        gate.partition(":")[0] for gate in settings.sections["forgetting-report"].get("fail-if", [])
    }
    lost = [gate for name, gate in gates.items() if kept and name not in kept]
    for option in ("guard", "guard-classes"):
        now_ = settings.own(option)
        lost += [one for one in before["update"].get(option, []) if now_ and one not in now_]
    return lost


def _require_whole(state: State, week: int, what: str) -> None:
    """Raise UsageError if --keep has removed the weights of a week that `what` needs."""
    if week and state.trimmed(state.head()[week]).exists():
        whole = [str(one.week) for one in state.head()[1:] if not state.trimmed(one).exists()]
        raise UsageError(
            f"{what}: --keep has removed the weights and pairs of week {week}; there are those of "
            f"the start and of weeks {some_names(whole)}"
        )


def _source(request: UpdateOptions) -> str:
    """An id of what --init names, or its words."""
    init = str(request.init)
    return init if is_imported(init) else content_at(Path(init), "checkpoint")


def _copy(source: Path, target: Path, state: State) -> None:
    """Copy a checkpoint, which appears whole; users may edit theirs."""
    making = state.hidden.writing
    shutil.copytree(source, making)
    target.parent.mkdir(parents=True, exist_ok=True)
    making.rename(target)


def _what_to_do(code: int) -> str:
    is_interrupted = code == Interrupted.exit_code or code > _SIGNAL
    first = "" if is_interrupted else "correct what its error names, then "
    return f"{first}run the same command again to continue"
