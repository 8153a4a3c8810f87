"""Putting weeks that were made again in `redo/` in the place of those that they are.

`current` is a link to a complete checkpoint at every moment: first to a copy of the new one that
does not move, of hard links, and then to the one in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vlcpctl.core.console import say
from vlcpctl.production.attempt import Attempt, Judgement
from vlcpctl.production.layout import Layout
from vlcpctl.production.ledger import REDONE, Action, judged_as, record
from vlcpctl.production.rollback import clear_pending
from vlcpctl.production.state import State


def swap(
    place: Layout,
    state: State,
    made: State,
    first: int,
    observe: Callable[[str], None],
) -> State:
    """Let the weeks of `made` from `first` on replace those of the state; returns the new state.

    Weeks that are replaced go to `rolled-back/`, and the pending one is removed: it continues a
    checkpoint that is no longer the last.
    """
    clear_pending(place, state)
    aside = replace(place, aside=first)
    place.discard(place.redone_checkpoint)
    place.link_tree(aside.week(made.last) / "checkpoint", place.redone_checkpoint)
    state = replace(made, redone=tuple(range(first, made.last + 1)))
    observe("linked")
    state.write(place)  # from here on, a killed swap is completed by the next call
    observe("recorded the swap")
    return swap_in(place, state, observe)


def swap_in(
    place: Layout,
    state: State,
    observe: Callable[[str], None] = lambda _point: None,
) -> State:
    """Complete the swap that `state.redone` has begun; returns the state after it."""
    first = state.redone[0]
    aside = replace(place, aside=first)
    record(place, _redone(place, aside, state))
    observe("recorded")
    if any(aside.week(number).exists() for number in state.redone):
        place.point_to_redone(state.last)
        observe("pointed aside")
    for number in place.numbers_from(first):  # those without a new week, too
        if aside.week(number).exists() or number > state.last:
            target = place.next_rolled_back(number)
            place.move(place.week(number), target)
            observe(f"without {number}")
            say(f"week {number} as it was is kept in {target}")
        _move_in(place, aside, number, observe)
    for number in state.redone:
        _move_in(place, aside, number, observe)
    place.point_to(state.last)
    observe("pointed")
    place.discard(place.redo)
    observe("without redo")
    state = replace(state, redone=())
    state.write(place)
    return state


def _move_in(place: Layout, aside: Layout, number: int, observe: Callable[[str], None]) -> None:
    if aside.week(number).exists():
        place.move(aside.week(number), place.week(number))
        observe(f"moved {number}")


def _redone(place: Layout, aside: Layout, state: State) -> Sequence[Action]:
    """The lines of the new weeks in the ledger, with the settings that differ from week to week."""

    def directory(number: int) -> Path:
        new = aside.week(number)
        return new if new.exists() else place.week(number)

    actions, before = [], state.start.settings
    if state.redone[0] > 1:
        before = Attempt.read(directory(state.redone[0] - 1)).settings
    for number in state.redone:
        attempt, judged = Attempt.read(directory(number)), Judgement.read(directory(number))
        assert judged is not None  # it was accepted
        content = state.weeks[number - 1].checkpoint
        action = judged_as(replace(state, settings=before), attempt, judged, content)
        actions.append(replace(action, action=REDONE))
        before = attempt.settings
    return actions
