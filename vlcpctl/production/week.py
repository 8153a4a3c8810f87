"""A week of a model in production: made by command lines, judged, and then accepted or rejected.

To make a week is to find or to make its attempt, and to judge it; to accept, to redo and to roll
back are one change of the head each. What a kill leaves is an attempt that the same call finds
again, and command lines that resume.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import log, say, warn
from vlcpctl.core.errors import (
    BadInput,
    GateFailed,
    HookFailed,
    OutputExists,
    UsageError,
    VlcpError,
    some_names,
)
from vlcpctl.core.words import counted, printable, wrapped
from vlcpctl.data.splitting.leaving_out import Counts, read_stop_list, sentence, stop_lists_in
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion.receipt import unfinished_under
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import content_of as content_at
from vlcpctl.jobs.runner import JobRunner
from vlcpctl.jobs.script import CommandLine
from vlcpctl.methods.plugins.method_file import load_method_file
from vlcpctl.production.changes import (
    doubts,
    judge_match,
    learned,
    match_of,
    of_emptied,
    warnings_of,
)
from vlcpctl.production.data import all_left_out, content_of, list_urls, refuse_leaks
from vlcpctl.production.guards import find_guards, guard_ids, require_unchanged, say_sights
from vlcpctl.production.hooks import ACCEPT, REJECT, run_hook
from vlcpctl.production.keep import keep
from vlcpctl.production.lines import Lines, is_imported, write_second_seed
from vlcpctl.production.options import UpdateOptions, week_number
from vlcpctl.production.page import report_of, write_page
from vlcpctl.production.settings import (
    NEW,
    Settings,
    changes_between,
    given_by,
    read_settings,
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
from vlcpctl.report.gates import enforce
from vlcpctl.report.write import check_junit_path, write_junit

_REPORT, _REJECTED, _UNDEFINED = "forgetting-report", 7, 3  # and its exit codes
_SIGNAL = 128  # and the number of the signal: the exit code of a line that it stopped
RunLine = Callable[[CommandLine], int]  # runs a line; its exit code
_EVALUATION = ("guard", "guard-classes", "data", "distractors", "index-week", "sample")


class LineFailed(VlcpError):
    """A command line of the update failed; its exit code becomes that of the update."""

    def __init__(self, what: str, line: CommandLine, code: int) -> None:
        advice = "run the same command again to continue"
        if line.words[0] == _REPORT and code == _UNDEFINED:
            advice = "--set forgetting-report.undefined=pass, or other conditions, judge it again"
        said = f"line {line.number}, {line.words[0]}, ended with code {code}"
        super().__init__(f"{what}: {said}; {advice}")
        self.exit_code = code


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

    def refuse(self, *, quiet: bool) -> None:
        """Raise HookFailed if a hook failed, and GateFailed if the week was rejected.

        With `quiet`, why it was rejected is printed here: the lines of the page were not.
        """
        week = self.attempt.week
        if self.hook:
            which = ACCEPT if self.accepted else REJECT
            raise HookFailed(
                f"week {week} is {which}ed, and stays so, but --on-{which} ended with exit code "
                f"{self.hook}; the same command runs it again"
            )
        if not self.accepted:
            against = self.attempt.against
            said = [f"week {week} is rejected:", *(f"  {one}" for one in against)]
            for text in [*said, f"  see {self.page}"] if quiet else ():
                log("\n".join(wrapped(printable(text), 4)))
            raise GateFailed(f"week {week} is rejected by {counted(len(against), 'condition')}")


def update(
    request: UpdateOptions, run: RunLine, observe: Observe = lambda _point: None
) -> list[Outcome]:
    """Do what a call asks for; the weeks that it made, of which the last may be rejected.

    Data that were accepted before are not trained on again. `observe` is called at the points
    between which a kill matters. Raises LineFailed, UsageError for a week that does not exist, or
    BadInput for a state that cannot be read, or weights that have changed.
    """
    require_free(request.state)
    with opened(request.state, observe, starts=request.init is not None) as state:
        call = Call(state, request, run)
        if request.rollback is not None:
            return call.roll_back(request.rollback)
        return [call.update()] if request.redo is None else call.redo(request.redo)


def dry_run(request: UpdateOptions) -> Iterator[str]:
    """The lines of the update as `vlcpctl batch` takes them; other steps are comments.

    Nothing is written, and no data are read.
    """
    require_free(request.state)
    exists = request.init is None or (request.state / "state.json").is_file()
    state = State.read(request.state) if exists else State(request.state)
    call = Call(state, request, run_line)
    if request.rollback is not None:
        for one in call.weeks_after(request.rollback):
            yield f"# {state.place(one)}, week {one.week}, is rolled back"
        return
    number = max(state.attempts, default=0) + 1
    if request.redo is not None:
        first, todo = call.weeks_of(request.redo)
        yield f"# {some_names([f'week {one.week}' for one in todo])} again, from week {first - 1}"
        head = call.check_redo(first, request.redo)
        data: Sequence[str] = [str(state.task(todo[0]))]
    else:
        head, data = state.head(), request.sources
        if not head:
            start = call.new([], "", (str(request.init), *request.buffer_from))
            head = [replace(start, id=number)]
            state.attempts[number] = head[0]
            yield "# the start"
            if not is_imported(str(request.init)):
                paths = str(request.init), str(state.made(head[0], "checkpoint"))
                yield f"# {shlex.join(['cp', '-a', *paths])}"
            yield from map(str, call.lines([], head[0], request.buffer_from).of_start())
            number += 1
        call.check(state.head())
    made = replace(call.new(head, "", ()), id=number)
    yield from (f"# week {made.week}", *map(str, call.lines(head, made, data).of_week()))
    yield f"# if the last line exits with 0, week {made.week} is accepted; with 7, it is rejected"
    yield "# not checked: whether the data are new, have test images, or were made before"


class Call:
    """A call of `update` on an open state, and the settings that hold for it."""

    def __init__(self, state: State, request: UpdateOptions, run: RunLine) -> None:
        self.state, self.request, self.run = state, request, run
        self.given = given_by(request)
        before: Mapping[str, Mapping[str, Any]] = NEW
        own = self.given.get("update", {})
        if state.counting:
            before = read_settings(state.root)
        elif request.init is None:
            raise UsageError(f"{state.root} is not a state directory; --init CHECKPOINT starts one")
        else:
            own = {"run": self._run_name(), **own}
        sections = with_given(before, {**self.given, "update": own})
        self.changes = changes_between(before if state.counting else {}, sections)
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
            others = changes_between(known.settings, with_given(known.settings, self.given))
            return self._no_week(f"this data is already week {known.week}", others, known)
        if not state.counting:
            self._start()
            self.check(state.head())
        self._require_reason(content)
        head = state.head()
        names = tuple(printable("/".join(Path(one).absolute().parts[-2:])) for one in data)
        made = self.new(head, content, names)
        left_out = self.lines(head, made, data).left_out()
        if counts := all_left_out(data, self.settings, state.root, left_out):
            why = sentence(counts, sum(sum(one.values()) for one in counts.values()))
            last = replace(head[-1], verdicts=(), warnings=(), lost=())
            return self._no_week(f"{why}: nothing is new", self.changes, last, counts)
        made = self.make(head, made)
        if made.status == PASSED:
            self._count("accepted", [*head, made])
            how = made.outcome if made.verdicts else "accepted unjudged: no --fail-if is set"
            say(f"{state.root}: week {made.week} is {how}; its page is {state.page(made)}")
        return self._outcome(made)

    def redo(self, word: str) -> list[Outcome]:
        """Make weeks again from their pairs; if all pass, they replace those that they are."""
        state = self.state
        first, todo = self.weeks_of(word)
        if self._are_made(first, todo):
            why = "these weeks are made so already"
            return [self._no_week(why, self.changes, state.head()[-1])]
        head = self.check_redo(first, word)
        outcomes = []
        for old in todo:
            if not has_pairs(state, old):
                say(f"{state.place(old)} has no pair for training left, and is not made again")
                continue
            made = self.new(head, old.data, old.names, again=old)
            left_out = self.lines(head, made, ()).left_out()
            if all_left_out([str(state.task(old))], self.settings, state.root, left_out):
                raise UsageError(f"all pairs of {state.place(old)} are accepted, or were deleted")
            made = self.make(head, made, old)
            outcomes.append(self._outcome(made, hooks=made.status != PASSED))
            if made.status != PASSED:
                say(f"nothing in {state.root} is replaced")
                return outcomes
            head.append(made)
        if not outcomes:
            raise UsageError(f"--redo {word}: there is no pair to train on left")
        self._count("redone", head)
        return [*outcomes[:-1], self._outcome(state.head()[-1])]

    def roll_back(self, week: int) -> list[Outcome]:
        """Make a week, or the start (0), the last accepted one again.

        The settings become those of the week.
        """
        state, head = self.state, self.state.head()
        if gone := self.weeks_after(week):
            changes = changes_between(self.settings.sections, head[week].settings)
            weeks, why = [one.week for one in gone], self.request.reason
            state.count("rolled back", head[: week + 1], weeks=weeks, changes=changes, reason=why)
        keep(state)
        return [self._outcome(head[week], hooks=False)]

    def weeks_after(self, week: int) -> list[Attempt]:
        """What a rollback takes back. Raises as `update` unless the week is there and whole."""
        state = self.state
        if not 0 <= week <= state.last:
            raise UsageError(f"--rollback {week}: {state.root} has weeks 0 to {state.last}")
        _require_whole(state, week, f"--rollback {week}")
        state.verify(state.head()[week])
        return state.head()[week + 1 :]

    def make(self, head: list[Attempt], wanted: Attempt, source: Attempt | None = None) -> Attempt:
        """The judged attempt for the week after `head`: found, continued or made.

        `source` is the attempt whose pairs it has; without one, they are the new data.
        """
        state = self.state
        found = state.with_key(wanted.key)
        if found is not None and found.id in state.counting:
            return found
        if found is not None and self.request.force:
            state.discard(state.place(found))
            found = state.put(replace(wanted, id=found.id))
        if found is None:
            found = state.begin(wanted)
        elif self._is_made(found, wanted):
            return state.put(replace(found, settings=wanted.settings))
        made = self._again(found, wanted)
        state.place(made).mkdir(parents=True, exist_ok=True)
        data = self.request.sources if source is None else None  # it has them
        if made.again:
            data = [str(state.task(state.attempts[made.again]))]
        say(f"{state.root}: making week {made.week} from {', '.join(made.names)}")
        while True:
            made = self._judged(self.lines(head, made, data))
            if made.status != MAKING:
                return made

    def new(
        self,
        head: Sequence[Attempt],
        content: str,
        names: tuple[str, ...],
        again: Attempt | None = None,
    ) -> Attempt:
        """The attempt after `head` that the settings ask for; not recorded, without a number."""
        root, settings = self.state.root, self.settings
        if again is not None:  # pairs keep their split
            kept = {**settings.sections, "split": again.settings["split"]}
            settings = Settings(kept, settings.files)
        guards = find_guards(root, settings)
        digests = {
            relative_to_root(root, str(path)): load_method_file(path).digest
            for path in settings.files
        }
        left_out = self._deletions()
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
        return Attempt(
            id=0,
            key=content_id(deciding),
            week=len(head),
            parent=head[-1].id if head else 0,
            data=content,
            names=names,
            settings=settings.sections,
            files=digests,
            guards=guards,
            evaluation=content_id([guards, [settings.own(name) for name in _EVALUATION]]),
            measured=tuple(one for one in guard_ids(root, settings) if one not in known),
            left_out=left_out,
            again=again.id if again is not None else 0,
            reason=self.request.reason,
        )

    def lines(self, head: Sequence[Attempt], made: Attempt, data: Sequence[str] | None) -> Lines:
        """What makes the lines of an attempt."""
        return Lines(self.state, head, made, self.settings, self.request, data)

    def check(self, head: Sequence[Attempt]) -> None:
        """Raise UsageError, BadInput or OutputExists if the week after `head` cannot be made."""
        state, settings = self.state, self.settings
        list_urls(settings.sections)
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
        has_buffer = head[-1].has_data if head else bool(self.request.buffer_from)
        needs = [one.name for one in settings.methods if one.needs(first=False).buffer]
        if needs and not has_buffer:
            raise UsageError(
                f"method {needs[0]} replays a buffer, which the first week does not have: "
                "start with --buffer-from DATA, or use a method that needs none, such as ctp"
            )
        if head:
            require_unchanged(guards, head[-1], self.given.get("update", {}).keys())
            self._check_after(head)

    def _check_after(self, head: Sequence[Attempt]) -> None:
        """Raise as `check` for what does not go with the accepted weeks."""
        state, settings, last = self.state, self.settings, head[-1]
        if settings.own("run") != head[0].settings["update"]["run"]:
            raise UsageError(f"the run of {state.root} is {head[0].settings['update']['run']}")
        week = settings.index_week or 0
        if week >= len(head):
            raise UsageError(f"index-week {week}: {state.root} has weeks 0 to {len(head) - 1}")
        _require_whole(state, week, f"index-week {week}")
        path = state.made(last, "buffer")
        if path.exists():
            held, size = open_task(path).buffer, settings.sections["buffer"]["size"]
            kept = {
                "policy": (held.policy, settings.policy),
                "seed": (held.seed, settings.own("seed", 0)),
                "size in %": (held.count is None, size.endswith("%")),
                "stored features": (held.features is not None, settings.stores_features),
            }
            for name, (was, wanted) in kept.items():
                if was != wanted:
                    raise UsageError(
                        f"the buffer of {state.root} was made with {name} {was}, which cannot "
                        f"change to {wanted}: start another --state"
                    )
        for one in {head[0].id, last.id, head[week].id}:
            state.verify(state.attempts[one])

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
        init, data = str(request.init), list(request.buffer_from)
        if not data:
            warn(
                f"{state.root} starts without --buffer-from: the first week replays nothing that "
                "the model has learned before, and may lose it"
            )
        state.root.mkdir(parents=True, exist_ok=True)
        wanted = self.new([], _source(request), (init, *data))
        earlier = content_of(data, self.settings, state) if data else ""
        wanted = replace(wanted, key=content_id([wanted.key, earlier, request.model]))
        made = state.with_key(wanted.key) or state.begin(wanted)
        say(f"{state.root}: making the start")
        checkpoint = state.made(made, "checkpoint")
        if not is_imported(init) and not checkpoint.exists():
            making = state.hidden.writing
            shutil.copytree(init, making)  # users may edit theirs
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            making.rename(checkpoint)
        lines = self.lines([], made, data)
        self._run(lines, lines.of_start(), "the start is not made")
        content = CheckpointManifest.read(checkpoint).content
        if not is_imported(init) and content != wanted.data:
            raise BadInput(f"{init} has changed while it was being copied; try again")
        same = {name: getattr(wanted, name) for name in ("settings", "guards", "measured")}
        made = replace(state.attempts[made.id], **same, checkpoint=content, status=PASSED)
        state.count("start", [state.put(made)], changes=self.changes)
        state.point()
        self.changes = {}

    def _judged(self, lines: Lines) -> Attempt:
        """The attempt once its lines have run and it is judged; not finished: to be trained again.

        A rejected training that did not clearly lose more than a bound is made once more, and the
        mean of both is judged.
        """
        state = self.state
        state.discard(state.made(lines.made, "report"))  # conditions may differ
        self._run(lines, lines.of_week(), f"week {lines.made.week} is not accepted")
        made = state.attempts[lines.made.id]
        stream = read_stream(state.place(made) / "stream")
        verdicts = tuple(one.as_json() for one in self.report[0].verdicts)
        is_rejected = any(one["holds"] for one in verdicts)
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
        # Other draws may lose less. In a simulated year, the mean of both rejects as few good weeks
        # as if both had to fail, and finds more bad ones.
        is_clear = any(one.holds and one.is_clear for one in judged.found())
        if is_rejected and not is_clear and judged.draw < int(self.settings.own("retries", 0)):
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
        state = self.state
        lines = replace(lines, made=judged)
        judged = replace(judged, warnings=(*warnings_of(lines), *of_emptied(lines)))
        for line in write_page(replace(lines, made=judged), *self.report):
            say(line)
        for text in judged.warnings if self.request.quiet else ():  # else the lines have them
            warn(f"week {judged.week}: {text}")
        same = ("status", "verdicts", "checkpoint", "warnings")
        if all(getattr(before, name) == getattr(judged, name) for name in same):
            return before
        judged = replace(judged, hook=None)
        if judged.status != REJECTED:
            return state.put(judged)
        state.attempts[judged.id] = judged  # saved together with its event
        state.change("rejected", judged, against=judged.against, reason=judged.reason)
        return judged

    def _run(self, lines: Lines, todo: Sequence[CommandLine], what: str) -> None:
        """Run lines one by one; raises LineFailed for one that fails, unless it rejects a week."""
        state, number = self.state, lines.made.id
        for line in todo:
            state.observe(f"line {line.number}")
            began, name = time.monotonic(), line.words[0]
            if name == "train-step":
                self._look_at_captions(lines)
            code = self._report(lines, line) if name == _REPORT else self.run(line)
            made = state.attempts[number]
            took = made.seconds.get(name, 0.0) + time.monotonic() - began
            state.put(replace(made, seconds={**made.seconds, name: round(took, 1)}))
            if code and (name, code) != (_REPORT, _REJECTED):
                raise LineFailed(what, line, code)
            if name == "split":
                refuse_leaks(lines)
            state.observe(f"after line {line.number}")

    def _report(self, lines: Lines, line: CommandLine) -> int:
        """Run the line of the report in this process: the page of the week shows the same one."""
        write_second_seed(lines)
        say(f"[{line.number}] {line}")
        try:
            document, ranks = report_of(lines.report)
            on_match = judge_match(self.state.attempts[lines.made.id].match, self.settings)
            verdicts = (*document.verdicts, *on_match)
            self.report = replace(document, verdicts=verdicts), ranks
            if self.request.junit is not None:
                write_junit(verdicts, self.request.junit)
            enforce(document.verdicts)
        except VlcpError as error:
            log(printable(f"vlcpctl {_REPORT}: {error}"))
            return error.exit_code
        return 0

    def _look_at_captions(self, lines: Lines) -> None:
        """Record how captions match images. Raises BadInput if that is a condition and unknown."""
        state, made = self.state, lines.made
        found = match_of(lines)
        if found is None and self.settings.match_gates:
            raise BadInput(
                f"{state.task(made)} has fewer than two test images, so that week_match is not "
                "known: hold out more, or leave out that --fail-if"
            )
        state.put(replace(state.attempts[made.id], match=found))
        for text in doubts(found, lines.head):
            warn(f"week {made.week}: {text}")

    def _count(self, action: str, head: list[Attempt]) -> None:
        """Let these weeks count, with the settings of this call, and bound the disk.

        Raises OutputExists if pairs were deleted while a week was made.
        """
        state, left_out = self.state, self._deletions()
        for made in head:
            if made.id not in state.counting and made.left_out != left_out:
                raise OutputExists(
                    f"pairs were deleted while week {made.week} was made; run the same command "
                    "again, which makes it without them"
                )
        state.count(action, head, changes=self.changes, reason=self.request.reason)
        state.point()
        keep(state)

    def _deletions(self) -> tuple[str, ...]:
        """The ids of the deletions whose pairs are left out."""
        return tuple(read_stop_list(one).content for one in stop_lists_in(self.state.root))

    def _is_made(self, found: Attempt, wanted: Attempt) -> bool:
        """Whether an attempt has passed by the same conditions, and is whole."""
        names = ("checkpoint", "buffer", "report")
        has_all = all(self.state.made(found, name).exists() for name in names)
        is_same = found.evaluation == wanted.evaluation
        is_same = is_same and found.settings[_REPORT] == wanted.settings[_REPORT]
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
        same = ("settings", "guards", "evaluation", "measured")
        found = replace(found, **{name: getattr(wanted, name) for name in same})
        return state.put(replace(found, reason=wanted.reason or found.reason))

    def _are_made(self, first: int, todo: Sequence[Attempt]) -> bool:
        """Whether these weeks, with these settings, are those that count, and no others."""
        state, head = self.state, self.state.head()[:first]
        for old in todo:
            wanted = self.new(head, old.data, old.names, again=old)
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
        named = names.get(word)
        if named is not None:
            number = next((x.week for x in head[1:] if named.id in (x.id, x.again)), None)
        if number is not None and 1 <= number <= last:
            return number, head[number:]
        others = {
            name: one
            for name, one in names.items()
            if one.status != MAKING and one.id not in state.counting
        }
        of_week = (one for one in reversed(others.values()) if one.week == number)
        found = others.get(word) or next(of_week, None)
        if found is None:
            known = [*([f"weeks 1 to {last}"] if last else []), *others]
            raise UsageError(
                f"--redo {word}: {state.root} has no such week; it has {some_names(known)}"
            )
        if not (state.place(found) / "stream").exists():
            raise UsageError(f"--redo {word}: --keep has removed its pairs")
        todo = [found]
        while found.counted and (
            after := [x for x in others.values() if x.parent == todo[-1].id and x.counted]
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

    def _no_week(
        self, why: str, changes: Sections, last: Attempt, dropped: Counts | None = None
    ) -> Outcome:
        """The outcome of a call that makes no week; a setting that is given is refused."""
        if changes:
            others = sorted(f"--{name}" for values in changes.values() for name in values)
            raise OutputExists(
                f"{self.state.root}: {why}, so that {', '.join(others)} would not be applied; give "
                "it with the data of another week"
            )
        say(f"{self.state.root}: {why}; no week is made")
        if self.request.junit is not None:
            write_junit(last.found(), self.request.junit)
        keep(self.state)
        return self._outcome(last, dropped, hooks=dropped is None)

    def _outcome(
        self, made: Attempt, dropped: Counts | None = None, *, hooks: bool = True
    ) -> Outcome:
        """What to say of an attempt, after its hook was run if that is still to be done."""
        code = run_hook(self.state, self.request, made) if hooks else None
        return Outcome(
            attempt=made,
            checkpoint=self.state.made(made, "checkpoint"),
            page=self.state.page(made),
            dropped=made.dropped if dropped is None else dropped,
            hook=code,
        )

    def _require_reason(self, content: str) -> None:
        """Refuse data that were rolled back, unless a reason is given to take them again."""
        state = self.state
        for one in reversed(state.attempts.values()):
            is_taken_back = one.counted and one.id not in state.counting
            if is_taken_back and one.data == content and self.request.reason is None:
                raise OutputExists(
                    f"this data was accepted as week {one.week} and rolled back; --reason TEXT "
                    f"makes a week of it again, as does --redo attempts/{one.id:04d} without "
                    "NEW_DATA"
                )


def run_line(line: CommandLine) -> int:
    """Run a line in a child of this process; its exit code, as a shell has it."""
    if line.words[0] != "split":
        from vlcpctl.models.imports import preload

        preload()
    runner = JobRunner([line], 1, hides_outputs=True)  # only the checkpoint to deploy is printed
    runner.run()
    if runner.failed is None:
        return 0 if runner.signal is None else _SIGNAL + runner.signal
    return runner.failed[1]


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
