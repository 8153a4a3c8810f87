"""Taking accepted weeks back, for `update --rollback`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.production.attempt import Attempt, Judgement, read_attempt
from vlcpctl.production.keeping import require_intact, require_whole
from vlcpctl.production.layout import OF_WEEK, Layout
from vlcpctl.production.ledger import ROLLED_BACK, Action, record
from vlcpctl.production.rejected import set_aside, trim
from vlcpctl.production.state import State


def rollback(place: Layout, state: State, week: int, reason: str | None = None) -> State:
    """Make this week, or the start (0), the last accepted one again; returns the new state.

    The later weeks are moved to `rolled-back/`; of the week in `pending/` see `fate_of_pending`.
    Settings are those of the week. Raises UsageError if there is no such week, and BadInput if its
    settings cannot be read, or its weights have changed; then nothing has changed.
    """
    require_week(place, state, week)
    if week == state.last:
        return state
    settings = Attempt.read(place.week(week)).settings if week else state.start.settings
    clear_pending(place, state)
    later = tuple(range(week + 1, state.last + 1))
    state = replace(state, settings=settings, weeks=state.weeks[:week], rolling_back=later)
    state.write(place)  # from here on, a killed rollback is completed by the next call
    record_rollback(place, state, reason)
    place.point_to(week)
    return move_away(place, state)


def clear_pending(place: Layout, state: State) -> None:
    """Remove the week in `pending/`, which a rejected one leaves for `rejected/`."""
    rejected = rejected_pending(place)
    if rejected is not None:
        set_aside(place, state, *rejected)
    elif (fate := fate_of_pending(place)) is not None:
        say(fate)
    trim(place)
    place.discard_pending()


def record_rollback(place: Layout, state: State, reason: str | None = None) -> None:
    """Add the rollback that `state` has begun to the ledger."""
    weeks, checkpoint = state.rolling_back, state.checkpoint
    action = Action(action=ROLLED_BACK, week=state.last, weeks=weeks, checkpoint=checkpoint)
    record(place, [replace(action, reason=reason)])


def rejected_pending(place: Layout) -> tuple[Attempt, Judgement] | None:
    """The week in `pending/` if it was rejected, and is whole."""
    with suppress(BadInput):  # damaged
        attempt, judged = read_attempt(place.pending), Judgement.read(place.pending)
        if attempt is not None and judged is not None and not judged.accepted:
            return attempt, judged
    return None


def fate_of_pending(place: Layout) -> str | None:
    """What becomes of the week in `pending/` at a rollback, in words; None if there is none."""
    shown, rejected = shown_pending(place), rejected_pending(place)
    if rejected is not None:
        return f"{shown} is kept without weights in {place.next_rejected(rejected[0].number)}"
    return f"{shown} is removed" if shown is not None else None


def shown_pending(place: Layout) -> str | None:
    """The week being made as it is named in messages; None if there is none."""
    if not any((place.pending / name).exists() for name in OF_WEEK):
        return None
    with suppress(BadInput):  # damaged
        attempt, judged = read_attempt(place.pending), Judgement.read(place.pending)
        if attempt is not None:
            which = "unfinished" if judged is None else "rejected"
            return f"{place.pending}, the {which} week {attempt.number},"
    return f"what there is of a week in {place.pending}"


def require_week(place: Layout, state: State, week: int) -> None:
    """Raise UsageError unless the week was accepted, or is the complete start.

    Raises BadInput if its weights have changed.
    """
    if not state.start.ready:
        raise UsageError(f"{place.root} has no week to go back to: its start is not complete")
    if week > state.last:
        known = f"0 to {state.last}" if state.last else "only 0, the start"
        raise UsageError(f"--rollback {week}: {place.root} has no such week (it has {known})")
    require_whole(place, state, week, f"--rollback {week}")
    require_intact(place, state, week)


def move_away(place: Layout, state: State) -> State:
    """Move the weeks that are rolled back out of `weeks/`; returns the state without them."""
    for number in state.rolling_back:
        if place.week(number).exists():
            target = place.next_rolled_back(number)
            place.move(place.week(number), target)
            say(f"week {number} is kept in {target}")
    state = replace(state, rolling_back=())
    state.write(place)
    return state
