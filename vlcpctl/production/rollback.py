"""Taking accepted weeks back, for `update --rollback`."""

from __future__ import annotations

from dataclasses import replace

from vlcpctl.core.errors import UsageError
from vlcpctl.production.attempt import Attempt
from vlcpctl.production.layout import Layout
from vlcpctl.production.state import State


def rollback(place: Layout, state: State, week: int) -> State:
    """Make this week, or the start (0), the last accepted one again; returns the new state.

    The later weeks are moved to `rolled-back/`, where a week of the same number is replaced, and
    the week being made is removed. Settings are those of the week. Raises UsageError if there is no
    such week.
    """
    require_week(place, state, week)
    if week == state.last:
        return state
    place.discard(place.pending)
    settings = Attempt.read(place.week(week)).settings if week else state.start.settings
    later = tuple(range(week + 1, state.last + 1))
    state = replace(state, settings=settings, weeks=state.weeks[:week], rolling_back=later)
    state.write(place)  # from here on, a killed rollback is completed by the next call
    place.point_to(week)
    return move_away(place, state)


def require_week(place: Layout, state: State, week: int) -> None:
    """Raise UsageError unless the week was accepted, or is the complete start."""
    if not state.start.ready:
        raise UsageError(f"{place.root} has no week to go back to: its start is not complete")
    if week > state.last:
        known = f"0 to {state.last}" if state.last else "only 0, the start"
        raise UsageError(f"--rollback {week}: {place.root} has no such week (it has {known})")


def move_away(place: Layout, state: State) -> State:
    """Move the weeks that are rolled back out of `weeks/`; returns the state without them."""
    for number in state.rolling_back:
        if place.week(number).exists():
            place.discard(place.rolled_back(number))
            place.move(place.week(number), place.rolled_back(number))
    state = replace(state, rolling_back=())
    state.write(place)
    return state
