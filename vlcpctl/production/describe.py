"""What a state directory holds, for `vlcpctl inspect`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from vlcpctl.core.options import text_of
from vlcpctl.core.words import counted, wrapped
from vlcpctl.data.splitting.leaving_out import LEAKED, read_stop_list, stop_lists_in
from vlcpctl.production.page import PAGE
from vlcpctl.production.settings import differences, read_settings
from vlcpctl.production.state import Attempt, Learned, Match, State

_SHOWN = 2  # verdicts of a week that fit on a line
_WEEKS = 8  # that the table has, the last ones
_EVENTS = 5  # likewise


def describe_state(path: Path) -> dict[str, Any]:
    """A state directory as a JSON object: settings, weeks, other attempts, and what was done.

    `current` is where the link of this name leads, or what is there in its place; `problem` says
    what is wrong with it. Raises BadInput if state.json or the events cannot be read. Nothing is
    changed.
    """
    state = State.read(path)
    head, current = state.head(), path / "current"
    deployed = current if current.exists() else None
    if current.is_symlink():
        deployed = path / current.readlink()
    others = [one for one in state.attempts.values() if one.id not in state.counting]
    last = head[-1] if head else None
    pending = [one for one in others if last and one.parent == last.id and not one.counted]
    pages = (state.made(one, "report") / PAGE for one in (*reversed(pending), *head[-1:]))
    return {
        "path": str(path),
        "kind": "state",
        "current": None if deployed is None else str(deployed),
        "problem": state.fault_of_current(),
        "accepted": str(state.made(last, "checkpoint")) if last else None,
        "week": state.last,
        "settings": read_settings(path) if head else {},
        "weeks": [_facts(state, one) for one in head],
        "others": [_facts(state, one) for one in others],
        "pending": _facts(state, pending[-1]) if pending else None,
        "page": next((str(one) for one in pages if one.is_file()), None),
        "deleted": sum(len(read_stop_list(one).keys) for one in stop_lists_in(path)),
        "events": state.events(),
    }


def _facts(state: State, one: Attempt) -> dict[str, Any]:
    """An attempt as a JSON object."""
    outcome = "rolled back" if one.counted and one.id not in state.counting else one.outcome
    place = {"path": str(state.place(one)), "outcome": outcome}
    return {name: value for name, value in asdict(one).items() if name != "key"} | place


def state_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The lines that show a state directory; `facts` is what `describe_state` returns.

    The first five say where it is; the settings and the last weeks are below.
    """
    yield from _now(facts)  # paths are not wrapped
    for line in _below(facts):
        yield from wrapped(line, len(line) - len(line.lstrip()) + 4)


def _below(facts: Mapping[str, Any]) -> Iterator[str]:
    for section, values in facts["settings"].items():
        said = ", ".join(f"{name} {text_of(value)}" for name, value in values.items())
        yield f"  {section}: {said}"
    yield from ("  " + line for line in _table(facts["weeks"]))
    yield from _others(facts)
    events = facts["events"]
    last = f"the last {_EVENTS} of " if len(events) > _EVENTS else ""
    yield f"  {last}{counted(len(events), 'event')}:"
    yield from (f"    {_event(one)}" for one in events[-_EVENTS:])


def _now(facts: Mapping[str, Any]) -> Iterator[str]:
    weeks, pending, last = facts["weeks"][1:], facts["pending"], "no week yet"
    if weeks:
        one = weeks[-1]
        last = f"week {one['week']}, {one['judged'][:10]}, {counted(one['pairs'], 'pair')}"
    yield f"state {facts['path']}: {last}"
    current = facts["current"] or f"no link; the last accepted checkpoint is {facts['accepted']}"
    wrong = f", which is not {facts['accepted']}" if facts["problem"] and facts["current"] else ""
    yield f"  current: {current}{wrong}"
    found = f"{weeks[-1]['outcome']}; {_verdicts(weeks[-1])}" if weeks else "none"
    yield f"  verdict: {found}"
    what = "none"
    if pending is not None:
        what = f"week {pending['week']}, {pending['outcome']}: {pending['path']}"
    yield f"  pending: {what}"
    yield f"  page: {facts['page'] or 'none'}"


def _others(facts: Mapping[str, Any]) -> Iterator[str]:
    """What changed from week to week, what is pending or deleted, and the other attempts."""
    pending = facts["pending"]
    for before, one in pairwise(facts["weeks"]):
        if said := ", ".join(_changes(before, one)):
            yield f"  changed in week {one['week']}: {said}"
    if pending is not None and pending["verdicts"]:
        yield f"  week {pending['week']}, pending:"
        yield from (f"    {_found(one)}, {one.get('outcome')}" for one in pending["verdicts"])
    for one in facts["weeks"][1:][-_WEEKS:]:
        if said := ", ".join(_measured(one)):
            yield f"  week {one['week']}: {said}"
    if facts["deleted"]:
        pairs = counted(facts["deleted"], "deleted pair")
        yield f"  left out from now on: {pairs} ({facts['path']}/deleted)"
    for one in facts["others"]:
        names = ", ".join(one["names"])
        about = f"week {one['week']}, {one['outcome']} {one['judged'][:10]}"
        yield f"  {one['path']}: {about} ({names})"


def _measured(week: Mapping[str, Any]) -> Iterator[str]:
    """What a week has learned, and whether its captions match its images."""
    if found := week["learned"]:
        one = Learned(**found)
        ends = "" if one.low is None else f" (95 % {one.low:.1f} to {one.high:.1f})"
        yield f"learned {one.points:+.1f} points{ends}"
    if found := week["match"]:
        yield f"captions match {Match(**found)}"


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between the settings of two weeks; of lists only the name."""
    for name, was, is_now in differences(before["settings"], now["settings"]):
        is_long = isinstance(was, list) or isinstance(is_now, list)
        values = ("none" if one is None else text_of(one) for one in (was, is_now))
        yield f"other {name}" if is_long else f"{name} {' -> '.join(values)}"


def _table(weeks: Sequence[Mapping[str, Any]]) -> list[str]:
    """A header, and a line for the start and each of the last weeks.

    They have data, pairs, checkpoint and verdicts.
    """
    rows = [("week", "pairs", "checkpoint", "conditions", "data")]
    starts = weeks[:1]
    rows += [("start", "", x["checkpoint"][:12], "", ", ".join(x["names"])) for x in starts]
    if len(weeks) - 1 > _WEEKS:
        rows.append(("...", "", "", "", f"--json has all {len(weeks) - 1} weeks"))
    for one in weeks[1:][-_WEEKS:]:
        leaked = sum(one["dropped"].get(LEAKED, {}).values())
        data = ", ".join(one["names"]) + (f", {leaked} leaks left out" if leaked else "")
        number = str(one["week"]), str(one["pairs"])
        rows.append((*number, one["checkpoint"][:12], _verdicts(one, 1), data))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    ]


def _verdicts(week: Mapping[str, Any], most: int = _SHOWN) -> str:
    """What conditions are about, and what was found, such as "worst_drop.rm 1.25"."""
    found = week["verdicts"]
    shown_ = (f"{one.get('metric')} {_number(one.get('value'))}" for one in found[:most])
    return (", ".join(shown_) or "none") + (", ..." if len(found) > most else "")


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "not defined"


def _found(verdict: Mapping[str, Any]) -> str:
    """A condition and what was found."""
    data = f" on {verdict['data']}" if verdict.get("data") else ""
    return f"{verdict.get('condition')}: {_number(verdict.get('value'))}{data}"


def _event(one: Mapping[str, Any]) -> str:
    """What was done, when and by whom."""
    when = f"{one['time'][:16].replace('T', ' ')} UTC"
    week = f" week {one['week']}" if "week" in one else ""
    more = [*one.get("data", ()), *one.get("against", ())]
    more += [f"{one['pairs']} pairs, see {one['receipt']}"] if "receipt" in one else []
    more += [f"--on-{one['hook']} ended with exit code {one['exit_code']}"] if "hook" in one else []
    more += [f"without week {', '.join(map(str, one['weeks']))}"] if "weeks" in one else []
    more += [f"reason: {one['reason']}"] if "reason" in one else []
    about = f" ({'; '.join(more)})" if more else ""
    return f"{when}, {one['user']} on {one['host']}: {one['action']}{week}{about}"
