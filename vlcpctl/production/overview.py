"""What a state directory holds, for `vlcpctl inspect`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vlcpctl.core.options import text_of
from vlcpctl.core.words import counted, wrapped
from vlcpctl.data.splitting.leaving_out import read_stop_list, stop_lists_in
from vlcpctl.production.settings import read_settings
from vlcpctl.production.state import Attempt, State

_WEEKS, _EVENTS = 8, 5  # that are shown, the last ones


def state_facts(state: State) -> dict[str, Any]:
    """A state as a JSON object: settings, weeks, other attempts, and what was done.

    `current` is where the link of this name leads, or what is there in its place; `problem` says
    what is wrong with it. Raises BadInput if the settings or the events cannot be read.
    """
    head, current = state.head(), state.root / "current"
    leads = state.root / current.readlink() if current.is_symlink() else current
    others = [one for one in state.attempts.values() if one.id not in state.counting]
    last = head[-1] if head else None
    pending = [one for one in others if last and one.parent == last.id and not one.counted]
    pages = map(state.page, (*reversed(pending), *head[-1:]))
    return {
        "path": str(state.root),
        "kind": "state",
        "current": str(leads) if os.path.lexists(current) else None,
        "problem": state.fault_of_current(),
        "accepted": str(state.made(last, "checkpoint")) if last else None,
        "week": state.last,
        "settings": read_settings(state.root) if head else {},
        "weeks": [_facts(state, one) for one in head],
        "others": [_facts(state, one) for one in others],
        "pending": _facts(state, pending[-1]) if pending else None,
        "page": next((str(one) for one in pages if one.is_file()), None),
        "deleted": sum(len(read_stop_list(one).keys) for one in stop_lists_in(state.root)),
        "events": state.events(),
    }


def _facts(state: State, one: Attempt) -> dict[str, Any]:
    """An attempt as a JSON object."""
    outcome = "rolled back" if one.counted and one.id not in state.counting else one.outcome
    place = {"path": str(state.place(one)), "outcome": outcome}
    return {name: value for name, value in asdict(one).items() if name != "key"} | place


def state_lines(state: State, facts: Mapping[str, Any]) -> Iterator[str]:
    """The lines that show a state; `facts` is what `state_facts` returns.

    The first five say where it is; the settings, the last weeks and the last events are below.
    """
    head, pending = state.head(), facts["pending"]
    about, verdict = "no week yet", "none"
    if state.last:
        one = head[-1]
        about = f"week {one.week}, {one.judged[:10]}, {counted(one.pairs, 'pair')}"
        verdict = f"{one.outcome}; {_verdicts(one)}"
    yield f"state {state.root}: {about}"
    yield f"  current: {facts['current'] or 'none'}"
    yield f"  verdict: {verdict}"
    waiting = "week {week}, {outcome}: {path}".format(**pending) if pending else "none"
    yield f"  pending: {waiting}"
    yield f"  page: {facts['page'] or 'none'}"  # paths are not wrapped
    for line in _below(head, facts):
        yield from wrapped(line, len(line) - len(line.lstrip()) + 4)


def _below(head: list[Attempt], facts: Mapping[str, Any]) -> Iterator[str]:
    for section, values in facts["settings"].items():
        said = ", ".join(f"{name} {text_of(value)}" for name, value in values.items())
        yield f"  {section}: {said}"
    rows = [("week", "pairs", "checkpoint", "conditions", "data")]
    for one in [*head[:1], *head[1:][-_WEEKS:]]:
        leaked = sum(one.dropped.get("leaked", {}).values())
        data = ", ".join(one.names) + (f", {leaked} leaks left out" if leaked else "")
        about = (str(one.week), str(one.pairs)) if one.week else ("start", "")
        rows.append((*about, one.checkpoint[:12], _verdicts(one, 1), data))
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]] + [0]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  " + "  ".join(cells)
    for one in head[1:][-_WEEKS:]:
        known = [] if one.learned is None else [f"learned {one.learned}"]
        known += [] if one.match is None else [f"captions match {one.match}"]
        if known:
            yield f"  week {one.week}: {', '.join(known)}"
    if facts["deleted"]:
        pairs = counted(facts["deleted"], "deleted pair")
        yield f"  left out from now on: {pairs} ({facts['path']}/deleted)"
    for each in facts["others"]:
        names, day = ", ".join(each["names"]), each["judged"][:10]
        yield f"  {each['path']}: week {each['week']}, {each['outcome']} {day} ({names})"
    events = facts["events"]
    yield f"  the last of {counted(len(events), 'event')}:"
    yield from (f"    {_event(each)}" for each in events[-_EVENTS:])


def _verdicts(one: Attempt, most: int = 2) -> str:
    """What conditions are about, and what was found, such as "worst_drop.rm 1.25"."""
    found = one.found()
    shown = (
        f"{x.metric} {'not defined' if x.value is None else f'{x.value:.2f}'}" for x in found[:most]
    )
    return ", ".join(shown) + (", ..." if len(found) > most else "")


def _event(one: Mapping[str, Any]) -> str:
    """What was done, when and by whom."""
    when = f"{one['time'][:16].replace('T', ' ')} UTC"
    week = f" week {one['week']}" if "week" in one else ""
    more = [*one.get("data", ()), *one.get("against", ())]
    more += [f"{one['pairs']} pairs, see {one['receipt']}"] if "receipt" in one else []
    more += [f"--on-{one['hook']} ended with exit code {one['exit_code']}"] if "hook" in one else []
    more += [f"without week {', '.join(map(str, one['weeks']))}"] if "weeks" in one else []
    if one["action"] != "start":  # which sets everything
        changes = [x for values in one.get("changes", {}).values() for x in values.items()]
        more += [f"{name} is now {'none' if to is None else text_of(to)}" for name, to in changes]
    more += [f"reason: {one['reason']}"] if "reason" in one else []
    about = f" ({'; '.join(more)})" if more else ""
    return f"{when}, {one['user']} on {one['host']}: {one['action']}{week}{about}"
