"""`update --redo`: weeks are made again from the pairs in the state, with the settings of today.

They are made in `redo/`, one after the other as `update` makes a week. If all are accepted, they
replace those that they are; at the first that is rejected everything stays as it was, and the same
call judges it again, or goes on after a kill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, GateFailed, UsageError, some_names
from vlcpctl.core.words import counted
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.production.attempt import Attempt, Judgement
from vlcpctl.production.hooks import Hooks
from vlcpctl.production.keeping import bound, require_whole
from vlcpctl.production.layout import Layout, week_number
from vlcpctl.production.ledger import REDO_STARTED, ROLLED_BACK, Action, read_ledger, record
from vlcpctl.production.left_out import StopLists
from vlcpctl.production.lines import Call, Lines, RunLines
from vlcpctl.production.rollback import clear_pending, rejected_pending
from vlcpctl.production.settings import Settings
from vlcpctl.production.sources import NewData, all_left_out
from vlcpctl.production.state import State, read_state
from vlcpctl.production.swapping import swap
from vlcpctl.production.update import (
    Observe,
    Outcome,
    accept,
    as_recovered,
    check_week,
    complete_acceptance,
    later_settings,
    make_week,
    recover,
    require_same_deletions,
    say_left_out,
    with_hook,
)


@dataclass(frozen=True, kw_only=True)
class RedoRequest:
    """A call of `update --redo`: `week` is the word that names the first week."""

    state: Path
    week: str
    call: Call  # without data
    given: dict[str, Any]
    force: bool = False
    hooks: Hooks = field(default_factory=Hooks)


@dataclass(frozen=True)
class Again:
    """A week to make again, from the task in its directory."""

    directory: Path

    @property
    def attempt(self) -> Attempt:
        """What it was asked for. Raises BadInput if that cannot be read."""
        return Attempt.read(self.directory)

    @property
    def task(self) -> Path:
        """Its only task. Raises BadInput if the stream cannot be read."""
        stream = self.directory / "stream"
        (entry,) = read_stream(stream).tasks
        return stream / entry.path

    @property
    def is_empty(self) -> bool:
        """Whether `vlcpctl forget` has removed all of its pairs for training."""
        train = read_task(self.task).splits.get("train")
        return train is None or not train.images


def redo(
    request: RedoRequest, run: RunLines, observe: Observe = lambda _point: None
) -> list[Outcome]:
    """Make a week again, and those after it; the lock must be held. The last may be rejected.

    Raises UsageError if there is no such week, and what `update` raises.
    """
    place = Layout(request.state)
    before = read_state(place)
    state = recover(place)
    if before.redone:
        say(f"{place.root}: the redo that was interrupted while it replaced weeks is complete")
        return _with_hook(request, _made_before(place, state, before.redone[0]), observe)
    request = _with_pending_moved(place, state, request)
    first, todo, settings = _planned(place, state, request)
    aside = replace(place, aside=first)
    made = _begun(place, aside, state, todo, settings, request)
    outcomes = _made_before(aside, made, first)
    for number, week in enumerate(todo[made.last - first + 1 :], start=made.last + 1):
        attempt = week.attempt
        call = replace(request.call, data=(str(week.task),), again=True)
        lines = Lines(aside, made, settings, call)
        _refuse_left_out(lines, week)
        data = NewData(attempt.sources, attempt.data)
        attempt, judged = make_week(lines, data, run, observe, force=False)
        outcome = Outcome(
            number=number,
            directory=aside.pending,
            judged=judged,
            left_out=say_left_out(aside, attempt),
        )
        outcomes.append(outcome)
        if not judged.accepted:
            return _with_hook(request, outcomes, observe)
        require_same_deletions(aside, attempt, call)
        made = accept(aside, made, observe)
        how = "accepted, not resolved" if judged.unresolved else "accepted"
        say(f"{place.root}: week {number}, made again, is {how}")
    state = swap(place, state, made, first, observe)
    bound(place, state, observe)
    say(f"{place.root}: {place.current} is week {state.last}, made again")
    outcomes = [replace(one, directory=place.week(one.number)) for one in outcomes]
    return _with_hook(request, outcomes, observe)


def _refuse_left_out(lines: Lines, week: Again) -> None:
    if all_left_out(lines.call.data, lines.of_data, lines.place.root, lines.left_out()):
        raise UsageError(
            f"all pairs of {week.directory} are in accepted weeks already, or were deleted"
        )


def _with_pending_moved(place: Layout, state: State, request: RedoRequest) -> RedoRequest:
    """The request, once the week in `pending/` is among the rejected ones, if that is the one."""
    pending = rejected_pending(place)
    if pending is None or not _is_pending(place, request.week, pending[0]):
        return request
    _weeks_of(place, state, request.week)  # refuses a word for several before anything is moved
    moved = place.next_rejected(pending[0].number)
    clear_pending(place, state)
    return replace(request, week=str(moved.relative_to(place.root)))


def _with_hook(
    request: RedoRequest, outcomes: Sequence[Outcome], observe: Observe
) -> list[Outcome]:
    """The outcomes, after the hook for the last of them has been run."""
    last = with_hook(Layout(request.state), request.hooks, outcomes[-1], observe)
    return [*outcomes[:-1], last]


def _made_before(place: Layout, state: State, first: int) -> list[Outcome]:
    """The outcomes of the weeks from `first` on that an earlier call has made."""
    return [
        Outcome(
            number=week.number,
            directory=place.week(week.number),
            judged=Judgement.recorded(week),
            left_out=week.left_out,
        )
        for week in state.weeks[first - 1 :]
    ]


def refuse_rejected(request: RedoRequest, outcomes: Sequence[Outcome]) -> None:
    """Raise HookFailed if a hook failed, and GateFailed if the last week was rejected."""
    last = outcomes[-1]
    if last.judged.accepted or last.hook:
        last.refuse()
        return
    raise GateFailed(
        f"week {last.number} is rejected when it is made again: {'; '.join(last.judged.against)}; "
        f"nothing in {request.state} is replaced; see {last.report}"
    )


def dry_run(request: RedoRequest) -> Iterator[str]:
    """The lines of the first week as `vlcpctl batch` takes them; other steps are comments."""
    place = Layout(request.state)
    state = as_recovered(place)
    first, todo, settings = _planned(place, state, request)
    aside = replace(place, aside=first)
    made = replace(state, weeks=state.weeks[: first - 1])
    call = replace(request.call, data=(str(todo[0].task),), again=True)
    _refuse_left_out(Lines(aside, made, settings, call), todo[0])
    for number, week in enumerate(todo, start=first):
        yield f"# week {number} again, from {week.directory}"
        if number == first:
            yield from map(str, Lines(aside, made, settings, call).of_week())
    replaced = state.last - first + 1
    what = f"replace {counted(replaced, 'week')}" if replaced else "are added"
    yield from request.hooks.comments()
    yield f"# if all are accepted, they {what} in {place.root}"


def _planned(
    place: Layout, state: State, request: RedoRequest
) -> tuple[int, list[Again], Settings]:
    """The number of the first week, the weeks to make again and their settings, all checked."""
    first, found = _weeks_of(place, state, request.week)
    todo = []
    if first <= state.last:
        require_whole(place, state, first, f"--redo {request.week}")
    require_whole(place, state, first - 1, f"--redo {request.week} continues week {first - 1}")
    for week in found:
        if week.is_empty:
            say(f"{week.directory} has no pair for training left, and is not made again")
        else:
            todo.append(week)
    if not todo:
        raise UsageError(f"--redo {request.week}: there is no pair to train on left")
    before = replace(state, weeks=state.weeks[: first - 1])
    settings = later_settings(place, before, request.given)
    if settings.index_week is not None and settings.index_week >= first:
        raise UsageError(
            f"--redo {request.week} replaces week {settings.index_week}, whose model the deployed "
            "index was built with; give the --index-week of an earlier one, such as 0, the start"
        )
    check_week(place, before, settings, request.call)
    return first, todo, settings


def _weeks_of(place: Layout, state: State, word: str) -> tuple[int, list[Again]]:
    """The weeks that --redo names, and the number that the first one gets.

    Raises UsageError if there is no such week, or several of this number.
    """
    if not state.start.ready:
        raise UsageError(f"{place.root} has no week to make again: its start is not complete")
    number = week_number(word)
    if number is not None and 1 <= number <= state.last:
        weeks = range(number, state.last + 1)
        return number, [Again(place.week(one)) for one in weeks]
    week = _not_accepted(place, state, word)
    return state.last + 1, [Again(week), *_rolled_back_after(place, week)]


def _not_accepted(place: Layout, state: State, word: str) -> Path:
    """The rejected or rolled-back week that --redo names. Raises UsageError unless it is one."""
    known = [*place.rejected(), *place.rolled_back()]
    if rejected_pending(place):  # `redo` moves it to the rejected ones
        known.append(place.pending)
    found = [one for one in known if one == place.root / word]
    if (wanted := week_number(word)) is not None:
        latest = {(one.parent, _number(one)): one for one in known if one != place.pending}
        if pending := rejected_pending(place):  # the latest of the rejected ones of its number
            number = pending[0].number
            latest[place.next_rejected(number).parent, number] = place.pending
        found = [one for (_, number), one in latest.items() if number == wanted]
    if len(found) > 1:
        words = some_names([str(one.relative_to(place.root)) for one in found])
        raise UsageError(f"--redo {word} may be {words}: give one of these in place of {word}")
    if not found:
        weeks = f"weeks 1 to {state.last}" if state.last else "no accepted week"
        names = some_names([weeks, *(str(one.relative_to(place.root)) for one in known)])
        raise UsageError(f"--redo {word}: {place.root} has no such week; it has {names}")
    if not (found[0] / "stream").exists():
        raise UsageError(
            f"--redo {word}: --keep has removed its pairs, since an accepted week has the same data"
        )
    return found[0]


def _rolled_back_after(place: Layout, week: Path) -> Iterator[Again]:
    """The weeks after this one that the last rollback took back with it."""
    if week not in place.rolled_back():
        return
    actions = [one for one in read_ledger(place).actions if one and one.action == ROLLED_BACK]
    last = actions[-1].weeks if actions else ()
    latest = {_number(one): one for one in place.rolled_back()}
    if _number(week) in last and latest[_number(week)] == week:
        yield from (Again(latest[one]) for one in last if one > _number(week) and one in latest)


def _is_pending(place: Layout, word: str, pending: Attempt) -> bool:
    """Whether --redo names the rejected week in `pending/`, which moves to `rejected/` first."""
    return word in {str(pending.number), place.pending.name}


def _number(week: Path) -> int:
    return int(week.name.partition("-")[0])


def _begun(
    place: Layout,
    aside: Layout,
    state: State,
    todo: Sequence[Again],
    settings: Settings,
    request: RedoRequest,
) -> State:
    """The state aside: the weeks before the first, and those that an earlier call has made."""
    base = replace(state, weeks=state.weeks[: (aside.aside or 1) - 1])
    if aside.state.exists() and not request.force:
        try:
            made = complete_acceptance(aside, read_state(aside))
            if _continues(aside, base, made, todo, settings, request.call):
                return made
        except BadInput:
            pass
        say(f"{place.redo} is of another command, and is removed")
    first = todo[0].attempt
    begun = Action(
        action=REDO_STARTED,
        week=aside.aside,
        data=first.data,
        names=first.sources,
        reason=request.call.reason,
    )
    record(place, [begun])
    place.discard(place.redo)
    place.redo.mkdir()
    base.write(aside)
    return base


def _continues(
    aside: Layout,
    base: State,
    made: State,
    todo: Sequence[Again],
    settings: Settings,
    call: Call,
) -> bool:
    """Whether the weeks made so far are the first of these, with the same settings and pairs."""
    count = len(base.weeks)
    if (made.start, made.weeks[:count]) != (base.start, base.weeks):
        return False
    deleted = StopLists.of(aside, call.readmit).contents
    for week, again in zip(made.weeks[count:], todo, strict=False):
        attempt = Attempt.read(aside.week(week.number))
        if attempt.data != again.attempt.data or attempt.deleted != deleted:
            return False
        if attempt.settings != settings:
            return False
    return True
