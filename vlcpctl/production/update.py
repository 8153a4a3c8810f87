"""The weekly update: split, train, evaluate, report, judge, and then accept or reject.

A week is made in `pending/` by ordinary command lines, each of which can be repeated: killed
anywhere, the same call continues. Accepting it is a rename, then the link `current`, then a new
state.json; the next call completes what was killed between them.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

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
)
from vlcpctl.core.words import printable
from vlcpctl.data.splitting.leaving_out import Counts
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.deletion.receipt import unfinished_under
from vlcpctl.files.outputs import Output
from vlcpctl.jobs.runner import JobRunner
from vlcpctl.jobs.script import CommandLine
from vlcpctl.production.attempt import (
    VERDICT_FILE,
    Attempt,
    Judgement,
    read_attempt,
    refuse_other_weeks,
    require_judged,
    verdicts_of,
)
from vlcpctl.production.forecast import forecast
from vlcpctl.production.guards import refuse_small, require_unchanged, sights
from vlcpctl.production.hooks import (
    ACCEPT,
    REJECT,
    Hooks,
    run_hook,
    said_of_missed,
    why_not,
)
from vlcpctl.production.keeping import (
    bound,
    require_intact,
    require_unchanged_weights,
    require_whole,
    trim_weeks,
)
from vlcpctl.production.layout import MOST_WEEKS, PAGE, TASK, TRAINED, Layout
from vlcpctl.production.leaks import checked
from vlcpctl.production.ledger import (
    REDO_REJECTED,
    Action,
    judged_as,
    record,
    require_ledger,
    started,
)
from vlcpctl.production.left_out import (
    TRAIN,
    StopLists,
    described,
    known_pairs,
    left_out_of,
)
from vlcpctl.production.lines import Call, Lines, RunLines, is_pretrained
from vlcpctl.production.page import write_page
from vlcpctl.production.records import as_json
from vlcpctl.production.rejected import said_of_rejected, set_aside, trim
from vlcpctl.production.remarks import errors_of, remarks
from vlcpctl.production.rollback import move_away, record_rollback, rejected_pending
from vlcpctl.production.seconds import timed
from vlcpctl.production.settings import NEW, NONE, Guard, Settings
from vlcpctl.production.sources import NewData, all_left_out, identify_data, list_urls
from vlcpctl.production.start import (
    begin,
    first_settings,
    make_start,
    require_buffer,
    require_probabilities,
    require_same_buffer,
    restarted,
)
from vlcpctl.production.state import (
    State,
    Week,
    guard_ids,
    read_state,
    unmeasured,
)
from vlcpctl.production.swapping import swap_in
from vlcpctl.report.week import WIDTH
from vlcpctl.report.write import check_junit_path, write_junit

Observe = Callable[[str], None]
_OPTIONS = {  # of settings
    "assignments": "set",
    "classes": "guard-classes",
    "guards": "guard",
    "kept_weeks": "keep",
    "train_options": "train-option",
}
_REFUSE = "--refuse-leaks"  # the only option that makes a setting false
_WITHOUT_MODEL = frozenset({"split", "forgetting-report"})
_SIGNAL = 128  # and the number of the signal: the exit code of a line that it stopped
_IDLE_INEXACT = "--accept-inexact has no effect: there is no unfinished training of this week"
_RECENT = 4  # weeks whose standard errors say what a guard shows
_REJECTED, _UNDEFINED = 7, 3  # exit codes of a report whose gates are met, or are undefined


class LineFailed(VlcpError):
    """A command line of the update failed; its exit code becomes that of the update."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """A call of `update` for new data; `given` are the settings that were given with it."""

    state: Path
    call: Call
    given: dict[str, Any]
    init: str | None = None
    buffer_from: tuple[str, ...] = ()
    force: bool = False
    hooks: Hooks = field(default_factory=Hooks)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The week that the data make: accepted now or earlier, or rejected."""

    number: int
    directory: Path
    judged: Judgement
    left_out: Counts = field(default_factory=dict)  # pairs of the data, by reason and list
    hook: int | None = None  # the exit code of --on-accept or --on-reject, if it was run

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the week."""
        return self.directory / "checkpoint"

    @property
    def report(self) -> Path:
        """The page of the week."""
        return self.directory / "report" / PAGE

    def as_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "week": self.number,
            "accepted": self.judged.accepted,
            "outcome": self.judged.outcome,
            "checkpoint": str(self.checkpoint),
            "content": CheckpointManifest.read(self.checkpoint).content,
            "report": str(self.directory / "report"),
            "verdicts": list(self.judged.verdicts),
            "attempts": [as_json(one) for one in self.judged.attempts],
            "warnings": list(self.judged.warnings),
            "left_out": self.left_out,
        }

    def refuse(self) -> None:
        """Raise HookFailed if a hook failed, and GateFailed if the week was rejected."""
        if self.hook:
            which = ACCEPT if self.judged.accepted else REJECT
            raise HookFailed(
                f"week {self.number} is {which}ed, and stays so, but --on-{which} ended with exit "
                f"code {self.hook}; the same command runs it again"
            )
        if not self.judged.accepted:
            raise GateFailed(
                f"week {self.number} is rejected: {'; '.join(self.judged.against)}; the state "
                f"stays at week {self.number - 1}; see {self.report}"
            )


def update(
    request: UpdateRequest, run: RunLines, observe: Observe = lambda _point: None
) -> Outcome:
    """Make the next week from new data, and accept or reject it; the lock must be held.

    Data that were accepted before are not trained on again. `observe` is called at the points
    between which a kill matters. Raises LineFailed, and what reading the state raises.
    """
    place = Layout(request.state)
    state, settings, data = prepare(request, place)
    known = state.week_of(data.content)
    if known is not None:
        return with_hook(place, request.hooks, _of_accepted(request, place, known), observe)
    if (said := said_of_missed(place, request.hooks, state.last)) is not None:
        warn(said)
    observe("prepared")
    lines = Lines(place, state, settings, request.call)
    if not state.start.ready:
        if not state.start.buffer_from:
            warn(
                f"{request.state} starts without --buffer-from: the first week replays nothing "
                "that the model has learned before, and may lose it; give pairs that it was "
                "trained on"
            )
        say(f"{request.state}: making the start")
        state = make_start(lines, partial(_run, checked(run, lines, of_start=True)))
        observe("start")
        lines = replace(lines, state=state)
    if counts := all_left_out(request.call.data, settings, place.root, lines.left_out()):
        return _of_nothing_new(request, place, state, counts)
    attempt, judged = make_week(lines, data, run, observe, force=request.force)
    outcome = _decided(request, state, attempt, judged, observe)
    return with_hook(place, request.hooks, outcome, observe)


def make_week(
    lines: Lines, data: NewData, run: RunLines, observe: Observe, *, force: bool
) -> tuple[Attempt, Judgement]:
    """Make and judge the pending week, and show its page."""
    place, state, call = lines.place, lines.state, lines.call
    _warn_of_emptied(lines.emptied)
    attempt = _attempt(place, state, lines.settings, data, call)
    attempt, is_made = _continue(place, state, attempt, observe, force=force)
    if not call.again and (said := said_of_rejected(place, state, attempt.data)) is not None:
        warn(said)
    observe("pending")
    say(f"{place.root}: making week {attempt.number} from {printable(', '.join(data.names))}")
    attempt, judged = _judged(lines, attempt, timed(run, place.pending), observe, is_made=is_made)
    judged = _with_remarks(place, state, attempt, judged, call)
    _show_page(lines, attempt)
    observe("judged")
    return attempt, judged


def with_hook(place: Layout, hooks: Hooks, outcome: Outcome, observe: Observe) -> Outcome:
    """The outcome, after the hook for it has been run if that is still to be done."""
    which = ACCEPT if outcome.judged.accepted else REJECT
    code = run_hook(place, hooks, which, outcome.directory, outcome.number, observe)
    return replace(outcome, hook=code)


def _decided(
    request: UpdateRequest, state: State, attempt: Attempt, judged: Judgement, observe: Observe
) -> Outcome:
    """Accept the pending week, or leave it where it is if it is rejected."""
    place = Layout(request.state)
    counts = say_left_out(place, attempt)
    made = Outcome(number=attempt.number, directory=place.pending, judged=judged, left_out=counts)
    if not judged.accepted:
        return made
    require_same_deletions(place, attempt, request.call)
    bound(place, accept(place, state, observe), observe)
    made = replace(made, directory=place.week(attempt.number))
    how = "accepted, not resolved" if judged.unresolved else "accepted"
    if not attempt.settings.gates:
        how = "accepted unjudged, since no --fail-if is set"
    say(f"{request.state}: week {made.number} is {how}; its page is {made.report}")
    return made


def dry_run(request: UpdateRequest) -> list[str]:
    """The lines of the update as `vlcpctl batch` takes them; other steps, and costs, are comments.

    Nothing is written. Raises what `update` raises before its first line.
    """
    place = Layout(request.state)
    state, settings, data = prepare(request, place, writes=False)
    known = state.week_of(data.content)
    if known is not None:
        _refuse_of_accepted(request, place, known)
        junit = request.call.junit
        writes = f"; its verdicts are written to {junit}" if junit is not None else ""
        said = [f"# this data is already accepted as week {known.number}{writes}"]
        if request.hooks.on_accept is not None:
            why = why_not(place, ACCEPT, known.number)
            said.append(f"# --on-accept is {'run' if why is None else f'not run: {why}'}")
        return said
    lines = Lines(place, state, settings, request.call)
    if counts := all_left_out(request.call.data, settings, place.root, lines.left_out()):
        why = _nothing_new(counts)
        _refuse_unapplied(f"{request.state}: {why}", request.given, state.settings, request.call)
        return [f"# {why}"]
    _continued(place, _attempt(place, state, settings, data, request.call), force=request.force)
    number, week = state.last + 1, place.week(state.last + 1)
    found = []
    if not state.start.ready:
        checkpoint, given = place.start / "checkpoint", state.start.given
        found.append("# the start")
        if not is_pretrained(given):
            found += [
                _comment("mkdir", "-p", place.start),
                _comment("cp", "-a", given, checkpoint),
            ]
        found += [str(line) for line in lines.of_start()]
    found += [f"# week {number}", *(str(line) for line in lines.of_week())]
    found += [
        "# if the last line exits with 0, the week is accepted",
        _comment("mv", place.pending, week),
    ]
    found += [f"# and {place.state} lists it; with {_REJECTED}, it is rejected"]
    return [*found, *request.hooks.comments(), *forecast(lines)]


def _show_page(lines: Lines, attempt: Attempt) -> None:
    """Write the page of the judged week, and say what it says."""
    width = max(WIDTH, shutil.get_terminal_size().columns) if sys.stderr.isatty() else None
    for line in write_page(lines.place, attempt, lines.of_week()[-1], width):
        say(line)


def _of_accepted(request: UpdateRequest, place: Layout, known: Week) -> Outcome:
    """The outcome of data that were accepted before."""
    week, junit = place.week(known.number), request.call.junit
    why = _refuse_of_accepted(request, place, known)
    say(f"{why}; nothing is trained or judged again")
    if junit is not None:
        write_junit(verdicts_of(known.verdicts, place.state), junit)
    judged = Judgement.recorded(known)
    return Outcome(number=known.number, directory=week, judged=judged, left_out=known.left_out)


def _refuse_of_accepted(request: UpdateRequest, place: Layout, known: Week) -> str:
    """Why no week is made of data that were accepted before.

    Raises OutputExists if the call asks for what is not done then.
    """
    week = place.week(known.number)
    why = f"{request.state}: this data is already accepted as week {known.number}"
    call = request.call
    lists = StopLists.of(place, call.readmit)  # refuses one that has changed
    if request.given or call.fresh_state or call.readmit or call.accept_inexact:
        accepted = Attempt.read(week)
        if accepted.fresh_state:
            call = replace(call, fresh_state=False)
        if lists.readmitted == accepted.readmitted:
            call = replace(call, readmit=())
        _refuse_unapplied(why, request.given, accepted.settings, call)
    if call.junit is not None:
        check_junit_path(call.junit, week / "report")
    return why


def _of_nothing_new(request: UpdateRequest, place: Layout, state: State, counts: Counts) -> Outcome:
    """The outcome of data without a new pair: the last accepted week stays what it is."""
    said = f"{request.state}: {_nothing_new(counts)}"
    _refuse_unapplied(said, request.given, state.settings, request.call)
    say(said)
    if request.call.junit is not None:
        write_junit([], request.call.junit)
    judged = Judgement(accepted=True, gates=(), undefined="", verdicts=())
    week = place.week(state.last)
    return Outcome(number=state.last, directory=week, judged=judged, left_out=counts)


def _nothing_new(counts: Counts) -> str:
    total = sum(count for names in counts.values() for count in names.values())
    return f"{described(counts, total)}: nothing is new, and no week is made"


def _refuse_unapplied(why: str, given: Mapping[str, Any], recorded: Settings, call: Call) -> None:
    """Raise OutputExists for settings given with data of which no week is made, naming them.

    Those that are as recorded are not refused. `why` says of which data no week is made.
    """
    names = [
        f"--{_OPTIONS.get(name, name.replace('_', '-'))}" if value is not False else _REFUSE
        for name, value in given.items()
        if _comparable(value) != _comparable(getattr(recorded, name))
    ]
    names += ["--fresh-state"] if call.fresh_state else []
    names += ["--readmit"] if call.readmit else []
    names += ["--accept-inexact"] if call.accept_inexact else []
    if names:
        raise OutputExists(
            f"{why}, so that {', '.join(sorted(names))} would not be applied; leave it out, or "
            "give it with the data of another week"
        )


def _comparable(value: object) -> object:
    """A setting as it is recorded; of guards, which `forget` may have rewritten, the paths."""
    if isinstance(value, tuple):
        return () if value == (NONE,) else tuple(map(_comparable, value))
    return value.path if isinstance(value, Guard) else value


def say_left_out(place: Layout, attempt: Attempt) -> Counts:
    """Say which pairs of the pending week are left out or known; returns those left out."""
    counts, read = left_out_of(place.pending)
    trains_known = attempt.settings.known == TRAIN
    known = known_pairs(place, place.pending, attempt.number) if trains_known else {}
    said = described({**counts, **known}, read, trains_known=trains_known)
    if said:
        say(f"{place.root}: week {attempt.number}: {said}")
    return counts


def require_same_deletions(place: Layout, attempt: Attempt, call: Call) -> None:
    """Refuse to accept a week if pairs were deleted while it was made."""
    if StopLists.of(place, call.readmit).contents != attempt.deleted:
        raise OutputExists(
            f"{place.root}: pairs were deleted while week {attempt.number} was made; run the same "
            "command again, which makes it without them"
        )


def _comment(*words: object) -> str:
    """A step that is not a line of `batch`, as a shell would take it."""
    return f"# {shlex.join(map(str, words))}"


def prepare(
    request: UpdateRequest, place: Layout, *, writes: bool = True
) -> tuple[State, Settings, NewData]:
    """The state, the settings of this week and its data, all of them checked.

    Without `writes`, what a killed call left is not completed. Raises UsageError, BadInput or
    OutputExists.
    """
    if place.state.is_file():
        state = recover(place) if writes else as_recovered(place)
        if state.start.ready or request.init is None:
            settings = later_settings(place, state, request.given)
        else:  # a call that begins again keeps no option of the one that failed
            settings = first_settings(place, request.init, request.given)
        start = request.init, request.buffer_from
        state = restarted(place, state, *start, settings, writes=writes)
        list_urls([] if state.start.ready else state.start.urls())
    else:
        state = begin(place, request.init, request.buffer_from, request.given)
        settings = state.settings
    if state.last >= MOST_WEEKS:
        raise UsageError(f"{request.state} has {MOST_WEEKS} weeks, the most possible")
    check_week(place, state, settings, request.call)
    data = identify_data(request.call.data, settings, place.root)
    if request.call.accept_inexact and request.force:
        raise UsageError("--accept-inexact has no effect with --force, which starts over")
    if writes and not state.start.ready:
        place.root.mkdir(parents=True, exist_ok=True)
        state.write(place)
    return state, settings, data


def later_settings(place: Layout, state: State, given: Mapping[str, Any]) -> Settings:
    """The settings of the next week: those of the state, with the given ones in their place.

    Raises UsageError and BadInput as `Settings.with_given` does.
    """
    settings = state.settings.with_given(given)
    list_urls(settings.urls())
    _refuse_other_run(place, state, settings)
    require_same_buffer(place, state, settings)
    return settings


def check_week(place: Layout, state: State, settings: Settings, call: Call) -> None:
    """Raise UsageError, BadInput or OutputExists if the next week cannot be made."""
    require_buffer(place, state, settings)
    require_probabilities(place, state, settings)
    _refuse_unfinished_deletion(place)
    _check_evaluation(place, state, settings, call)
    _require_models(place, state, settings)
    if place.embeddings.is_file():
        raise BadInput(f"{place.embeddings} is a file, where embeddings are kept; move it away")
    if call.junit is not None:
        check_junit_path(call.junit, place.pending / "report")


def _require_models(place: Layout, state: State, settings: Settings) -> None:
    """Raise BadInput if weights that the next week continues, or is compared with, have changed."""
    if state.start.ready and not state.redone:  # else a dry run finds weeks where they were
        for week in sorted({0, state.last, settings.index_week or 0}):
            require_intact(place, state, week)
    elif not (state.start.ready or is_pretrained(state.start.given)):
        copied = place.start / "checkpoint"
        require_unchanged_weights(copied if copied.exists() else Path(state.start.given))


def _warn_of_emptied(weeks: Sequence[int]) -> None:
    if weeks:
        noun = "week" if len(weeks) == 1 else "weeks"
        warn(
            f"'vlcpctl forget' has removed all test pairs of {noun} {', '.join(map(str, weeks))}: "
            "metrics over all weeks, such as bwt_gem, are those of the other weeks"
        )


def _check_evaluation(place: Layout, state: State, settings: Settings, call: Call) -> None:
    """Check what the week is evaluated on and judged by, and say what is new in that."""
    require_unchanged(place.root, settings)
    week = settings.index_week
    if week is not None and week > state.last:
        raise UsageError(
            f"--index-week {week}: {place.root} has no such week (it has 0 to {state.last})"
        )
    require_whole(place, state, week or 0, f"--index-week {week}")
    _warn_of_left_out(state.settings, settings)
    _say_of_gates(place, state, settings, call)


def _warn_of_left_out(before: Settings, now: Settings) -> None:
    lost = before.left_out_of(now)
    if lost:
        warn(
            f"this week is not judged by {', '.join(lost)}: an option that is given again replaces "
            "all of its earlier values; repeat those that should stay"
        )


def _say_of_gates(place: Layout, state: State, settings: Settings, call: Call) -> None:
    """Say what guards can show when they or their bounds are given, and which gates are old.

    Raises UsageError for a guard that shows too little.
    """
    if settings.is_from_before:
        kept = [f"the gates {' and '.join(settings.gates)}"]
        today = ["--fail-if default --retries 1"]
        if settings.replay is None and settings.default_replay is None:
            kept.append("--replay union")
            today.append(f"--replay {NEW['default_replay']}")
        say(
            f"{place.root} was started by a version with other defaults and keeps "
            f"{' and '.join(kept)}; '{' '.join(today)}' takes those of today"
        )
    before = state.settings.guards if state.start.ready else ()
    if not call.small_guard:
        known = {one.content for one in before}
        refuse_small(place.root, [one for one in settings.guards if one.content not in known])
    same = ("gates", "false_alarms")
    is_same = all(getattr(settings, name) == getattr(state.settings, name) for name in same)
    if settings.guards == before and is_same:
        return
    recent = [one for week in state.weeks[-_RECENT:] for one in week.verdicts]
    found = sights(place.root, settings, errors_of(recent))
    for sight in found:
        speak = warn if sight.sees > 2 * sight.bound else say
        speak(f"guard {sight.sentence()}")


def _refuse_unfinished_deletion(place: Layout) -> None:
    """Refuse to train on pairs that are being deleted."""
    receipt = unfinished_under(place.root)
    if receipt is not None:
        raise OutputExists(
            f"{receipt} is of a deletion in {place.root} that has not finished; run its 'vlcpctl "
            "forget' again, and then the update"
        )


def _refuse_other_run(place: Layout, state: State, settings: Settings) -> None:
    """Refuse --run with another name: reports follow one run from the start to the last week."""
    if settings.run != state.settings.run:
        raise UsageError(
            f"--run {settings.run}: the run of {place.root} is {state.settings.run}, and --run "
            "names it only with --init; leave it out"
        )


def as_recovered(place: Layout) -> State:
    """The state as `recover` will make it; nothing is written. Raises what `recover` raises."""
    state = read_state(place)
    require_ledger(place)
    place.require_current(state.weeks_of_current(place))
    if state.rolling_back or state.redone:  # weeks are moved away before any is looked at
        return state
    refuse_other_weeks(place, state.last + 1)
    return _with_next(place, state)[0] if place.week(state.last + 1).exists() else state


def recover(place: Layout, reason: str | None = None) -> State:
    """The state, after what a killed call left half-done has been completed.

    `reason` is that of a rollback: this call may be the one that was killed.
    """
    place.tidy()
    state = read_state(place)
    require_ledger(place)  # before anything is done that could not be written in it
    place.require_current(state.weeks_of_current(place))
    trim(place)
    if state.rolling_back:
        record_rollback(place, state, reason)
        place.point_to(state.last)
        state = move_away(place, state)
    if state.redone:
        state = swap_in(place, state)
    refuse_other_weeks(place, state.last + 1)
    state = complete_acceptance(place, state)
    if state.start.ready:
        place.point_to(state.last)
    if place.pending.exists():  # its models' embeddings are among those that would be removed
        trim_weeks(place, state)
    else:
        bound(place, state)
    return state


def complete_acceptance(place: Layout, state: State) -> State:
    """The state with the week that was moved to the accepted ones, but is not in it yet."""
    if not place.week(state.last + 1).exists():
        return state
    return _record(place, state, lambda _: None)


def accept(place: Layout, state: State, observe: Observe) -> State:
    """Make the pending week the last accepted one."""
    place.move(place.pending, place.week(state.last + 1))
    observe("moved")
    state = _record(place, state, observe)
    observe("accepted")
    return state


def run_lines(lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
    """Run the lines in children of this process; raises LineFailed if a signal stopped them."""
    from vlcpctl.models.imports import preload

    if any(line.words[0] not in _WITHOUT_MODEL for line in lines):
        preload()
    # What is made in pending/ moves when the week is accepted, and `update` names its new place.
    runner = JobRunner(lines, 1, hides_outputs=True)
    runner.run()
    if runner.failed is None and runner.signal is not None:
        raise LineFailed(f"stopped by signal {runner.signal}", 128 + runner.signal)
    return runner.failed


def _record(place: Layout, state: State, observe: Observe) -> State:
    """Let `current` be the week that was moved to `weeks/`, and add the week to state.json.

    In this order, so that what a kill leaves can be told from a link that somebody has changed.
    """
    state, action = _with_next(place, state)
    if place.aside is None:  # else its lines follow when it replaces another week
        record(place, [action])
        observe("recorded")
        place.point_to(state.last)
        observe("pointed")
    state.write(place)
    return state


def _with_next(place: Layout, state: State) -> tuple[State, Action]:
    """The state with the week that was moved to `weeks/`, and the line of the ledger about it.

    Raises BadInput if it is not the next accepted week, or its weights have changed.
    """
    directory = place.week(state.last + 1)
    attempt, judged = require_judged(directory, state.last + 1, state.checkpoint)
    week = attempt.accepted(directory, judged.verdicts)
    action = judged_as(state, attempt, judged, week.checkpoint)
    state = replace(state, settings=attempt.settings, weeks=(*state.weeks, week))
    require_intact(place, state, state.last)
    return state, action


def _attempt(place: Layout, state: State, settings: Settings, data: NewData, call: Call) -> Attempt:
    lists = StopLists.of(place, call.readmit)
    return Attempt(
        number=state.last + 1,
        parent=state.checkpoint,
        data=data.content,
        sources=data.names,
        settings=settings,
        fresh_state=call.fresh_state,
        measured=tuple(guard_ids(unmeasured(state, settings))),
        deleted=lists.contents,
        readmitted=lists.readmitted,
        accept_inexact=call.accept_inexact,
        reason=call.reason,
    )


def _judged(
    lines: Lines, attempt: Attempt, run: RunLines, observe: Observe, *, is_made: bool
) -> tuple[Attempt, Judgement]:
    """Make the pending week, or if it is made its report alone; again if it is to be retried."""
    lines = replace(lines, attempt=len(attempt.rejected))
    judged = _make(lines, attempt, run, lines.of_week()[-1:] if is_made else lines.of_week())
    while _is_retried(attempt, judged):
        attempt = _begin_again(lines, attempt, judged, observe)
        lines = replace(lines, attempt=len(attempt.rejected))
        judged = _make(lines, attempt, run, lines.from_training())
    return attempt, judged


def _is_retried(attempt: Attempt, judged: Judgement) -> bool:
    """Whether a rejected week is trained again: other draws may lose less, unless it is clear."""
    has_left = len(attempt.rejected) < attempt.settings.retries
    return has_left and not judged.accepted and not judged.is_clear


def _begin_again(lines: Lines, attempt: Attempt, judged: Judgement, observe: Observe) -> Attempt:
    """Remove what the training of the pending week made, and record its verdicts.

    The verdict goes first and the checkpoint last: a kill between them leaves a training that is
    judged again, with the same result, or one that is made again.
    """
    place, pending = lines.place, lines.place.pending
    say(
        f"{place.root}: week {attempt.number} is rejected, not clearly: "
        f"{'; '.join(judged.against)}; it is trained once more, with other draws"
    )
    for path in (pending / VERDICT_FILE, pending / "report", *lines.of_training(pending)):
        place.discard(path)
        observe(f"without {path.name}")
    attempt = replace(attempt, rejected=judged.attempts)
    attempt.write(pending)
    observe("begun again")
    return attempt


def _with_remarks(
    place: Layout, state: State, attempt: Attempt, judged: Judgement, call: Call
) -> Judgement:
    """Record the rejection of a week in the ledger, and the warnings with its judgement."""
    if not judged.accepted:
        checkpoint = CheckpointManifest.read(place.pending / "checkpoint").content
        action = judged_as(state, attempt, judged, checkpoint)
        again = action if place.aside is None else replace(action, action=REDO_REJECTED)
        record(place, [again])
    judged = replace(judged, warnings=remarks(place, state, judged))
    judged.write(place.pending)
    for text in judged.warnings if call.quiet else ():  # else the page's lines have them
        warn(f"week {attempt.number}: {text}")
    return judged


def _continue(
    place: Layout, state: State, attempt: Attempt, observe: Observe, *, force: bool
) -> tuple[Attempt, bool]:
    """Prepare `pending/` for this attempt; returns it, and whether all but its report is made.

    An attempt that continues keeps the trainings of this week that were rejected. A rejected week
    gives way to another one, and is kept in `rejected/`. Raises what `_continued` raises.
    """
    pending = place.pending
    before = _continued(place, attempt, force=force)
    if before is None:
        _empty_pending(place, state, attempt, observe)
        attempt.write(pending)
        return attempt, False
    is_same = before.settings.same_evaluation(attempt.settings)
    is_made = is_same and Judgement.read(pending) is not None
    # The report is always made again: gates may differ, and `forget` may have removed ranks.
    for name in ("verdict.json", "report", *(() if is_same else ("ranks", "rows"))):
        place.discard(pending / name)
    inexact = before.accept_inexact or attempt.accept_inexact
    attempt = replace(attempt, accept_inexact=inexact, rejected=before.rejected)
    attempt.write(pending)
    return attempt, is_made


def _continued(place: Layout, attempt: Attempt, *, force: bool) -> Attempt | None:
    """The attempt in `pending/` that this one continues, or judges again; None without one.

    Raises OutputExists for the unfinished training of another one, unless `force`, and UsageError
    for --accept-inexact without anything to resume.
    """
    pending = place.pending
    before = read_attempt(pending) if not force else None
    if before is not None and before.deleted != attempt.deleted:
        say(
            f"{place.root}: week {before.number} is made again from its start: pairs were deleted, "
            "or readmitted, since it was split"
        )
        before = None
    differences = before.differences(attempt) if before is not None else []
    if differences and _has_trained(pending) and Judgement.read(pending) is None:
        raise OutputExists(
            f"{pending} is an unfinished week of a different command: {'; '.join(differences)};"
            " finish it with that command, or --force starts over"
        )
    before = None if differences else before
    if attempt.accept_inexact and not (before is not None and _has_trained(pending)):
        raise UsageError(_IDLE_INEXACT)
    return before


def _empty_pending(place: Layout, state: State, attempt: Attempt, observe: Observe) -> None:
    """Make room for a new attempt: a rejected week of another one is kept in `rejected/`."""
    rejected = rejected_pending(place)
    if place.aside is None and rejected is not None and rejected[0].differences(attempt):
        set_aside(place, state, *rejected)
        observe("set aside")
        trim(place)
    else:
        place.discard_pending()
    if place.aside is None:
        record(place, started(state, attempt))  # before week.json: after a kill this is repeated
        observe("started")
    place.pending.mkdir(parents=True, exist_ok=True)


def _has_trained(pending: Path) -> bool:
    places = (pending / TRAINED, pending / "checkpoint")
    return any(one.exists() or Output(one).partial.exists() for one in places)


def _make(lines: Lines, attempt: Attempt, run: RunLines, todo: Sequence[CommandLine]) -> Judgement:
    """Run the lines of the week, and write its judgement."""
    pending = lines.place.pending
    failed = checked(run, lines)(todo)
    is_report = failed is not None and failed[0].words[0] == "forgetting-report"
    if failed is not None and not (is_report and failed[1] == _REJECTED):
        raise LineFailed(_why_failed(lines.place, attempt, *failed), failed[1])
    judged = Judgement.of(pending, attempt, accepted=failed is None)
    judged.write(pending)
    return judged


def _why_failed(place: Layout, attempt: Attempt, line: CommandLine, code: int) -> str:
    which = f"line {line.number}, {line.words[0]},"
    said = f"week {attempt.number} is not accepted: {which} ended with code {code}"
    report = place.pending / "report" / "summary.json"
    if code == _UNDEFINED and line.words[0] == "forgetting-report" and report.is_file():
        return (
            f"{said}: a condition of --fail-if is undefined; run the same command with other "
            "conditions or with --undefined pass, and the week is judged again"
        )
    if _lacks_test(place, attempt.number):
        column = attempt.settings.split_column
        why = (
            "the share is too small for it; --holdout test=N holds out N images"
            if column is None
            else f"column {column} has no pair with split test"
        )
        return f"{said}: no image of this week is in split test: {why}"
    return f"{said}; {_what_to_do(code)}"


def _lacks_test(place: Layout, number: int) -> bool:
    """Whether the week was split without a test split: shares of small weeks can be empty."""
    task = place.pending / "stream" / TASK.format(number)
    return task.exists() and "test" not in read_task(task).splits


def _what_to_do(code: int) -> str:
    is_interrupted = code == Interrupted.exit_code or code > _SIGNAL
    first = "" if is_interrupted else "correct what its error names, then "
    return f"{first}run the same command again to continue"


def _run(run: RunLines, lines: Sequence[CommandLine]) -> None:
    """Run lines that must succeed."""
    failed = run(lines) if lines else None
    if failed is not None:
        line, code = failed
        said = f"the start is not made: line {line.number}, {line.words[0]}, ended with code {code}"
        raise LineFailed(f"{said}; {_what_to_do(code)}", code)
