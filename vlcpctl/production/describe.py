"""What a state directory holds, for `vlcpctl inspect`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import shown
from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import counted
from vlcpctl.data.splitting.leaving_out import LEAKED, read_stop_list, stop_lists_in
from vlcpctl.files.inputs import converted
from vlcpctl.production.attempt import (
    Judgement,
    judged_at,
    read_attempt,
    trained_in,
    verdicts_of,
)
from vlcpctl.production.deploying import LATEST
from vlcpctl.production.layout import PAGE, Layout
from vlcpctl.production.ledger import (
    FORGOTTEN,
    HOOK_RUN,
    JUDGED,
    READMITTED,
    REDO_REJECTED,
    REDO_STARTED,
    REJECTED,
    ROLLED_BACK,
    UNRESOLVED,
    Action,
    read_ledger,
)
from vlcpctl.production.records import as_json
from vlcpctl.production.state import State, Week, read_state
from vlcpctl.report.gates import in_words

KIND = "state"
_SHOWN = 2  # verdicts of a week that fit on a line
_WEEKS = 8  # that the table has, the last ones
_ACTIONS = 5  # of the ledger, likewise


def is_state(path: Path) -> bool:
    """Whether a path is a state directory."""
    return Layout(path).state.is_file()


def describe_state(path: Path) -> dict[str, Any]:
    """A state directory as a JSON object: settings, start, weeks, and the week being made.

    `current` is where the link of this name leads, or what is there in its place; `problem` says
    what is wrong with it, or else with the ledger, whose lines are `history`. Raises BadInput if
    state.json or the ledger cannot be read. Nothing is changed.
    """
    place = Layout(path)
    state = read_state(place)
    deployed = place.current if place.current.exists() else None
    if place.current.is_symlink():
        deployed = place.root / place.current.readlink()
    fault = place.fault_of_current(state.weeks_of_current(place))
    ledger = read_ledger(place)
    return {
        "path": str(path),
        "kind": KIND,
        "current": None if deployed is None else str(deployed),
        "problem": (
            ledger.problem if fault is None else place.repair_of_current(fault, state.last)
        ),
        "accepted": str(place.week(state.last) / "checkpoint") if state.start.ready else None,
        "week": state.last,
        "start": {
            "given": state.start.given,
            "checkpoint": state.start.checkpoint or None,
            "buffer_from": list(state.start.buffer_from),
            "ready": state.start.ready,
        },
        "settings": as_json(state.settings),
        "gates": list(state.settings.gates),
        "training": _training(place, state),
        "weeks": [_week(place, week) for week in state.weeks],
        "pending": _pending(place, state),
        "page": _page(place, state),
        "deleted": sum(len(read_stop_list(one).keys) for one in stop_lists_in(path)),
        "rolled_back": [one.name for one in place.rolled_back()],
        "rejected": [one.name for one in place.rejected()],
        "history": list(ledger.lines),
    }


def state_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The lines that show a state directory; `facts` is what `describe_state` returns.

    The first five say where it is; the settings and the last weeks are below.
    """
    yield f"state {facts['path']}: {_last(facts)}"
    yield f"  current: {_current(facts)}"
    yield f"  verdict: {_verdict(facts)}"
    pending = facts["pending"]
    what = "none" if pending is None else f"week {pending['week']}, {pending['outcome']}"
    yield f"  pending: {what}{'' if pending is None else ': ' + pending['path']}"
    yield f"  page: {facts['page'] or 'none'}"
    yield from _details(facts)


def _last(facts: Mapping[str, Any]) -> str:
    """The last week, and how many pairs it has."""
    if not facts["weeks"]:
        return "no week yet"
    week = facts["weeks"][-1]
    when = f", {week['time'][:10]}" if week["time"] else ""
    return f"week {week['week']}{when}, {counted(week['pairs'], 'pair')}"


def _verdict(facts: Mapping[str, Any]) -> str:
    """The verdict on the last week in words, with what was found."""
    if not facts["weeks"]:
        return "none"
    found = facts["weeks"][-1]["verdicts"]
    words = in_words(verdicts_of(found, Path(facts["path"])), accepted=True)
    return f"{words}; {_verdicts(found)}" if found else words


def _details(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from _settings(facts)
    yield from ("  " + line for line in _table(facts))
    for number, changes in _changes_of_weeks(facts):
        yield f"  changed in week {number}: {', '.join(changes)}"
    if said := _leaks(facts):
        yield f"  training pairs left out because their images are tested: {said}"
    pending = facts["pending"]
    if pending is not None and pending["verdicts"]:
        yield f"  week {pending['week']}, pending:"
        yield from (f"    {one}" for one in _verdict_lines(pending["verdicts"]))
    if facts["deleted"]:
        pairs = counted(facts["deleted"], "deleted pair")
        yield f"  left out from now on: {pairs} ({facts['path']}/deleted)"
    for words, directory in (("rolled back", "rolled-back"), ("rejected", "rejected")):
        place = Path(facts["path"]) / directory
        if names := facts[words.replace(" ", "_")]:
            dated = ", ".join(_dated(place / name) for name in names)
            yield f"  {words}: {dated} ({place})"
    yield from _history(facts)


def _dated(week: Path) -> str:
    """Such as "0002 of 2026-11-09", which is when it was judged."""
    time = _judged_at(week)
    return week.name if time is None else f"{week.name} of {time[:10]}"


def _judged_at(week: Path) -> str | None:
    """When a week was judged; None if that cannot be read."""
    with suppress(BadInput):
        return judged_at(week)
    return None


def _settings(facts: Mapping[str, Any]) -> Iterator[str]:
    """How the next week is trained and judged."""
    settings = facts["settings"]
    column = settings["split_column"]
    splits = f"hold-out {settings['holdout']}" if column is None else f"splits of column {column}"
    yield (
        f"  run {settings['run']}, method {settings['method']}, preset {settings['preset']}, "
        f"buffer {settings['buffer_size']}, {splits}"
    )
    if "deploy" in settings:
        start_from = settings.get("start_from", LATEST)
        yield f"  deployed: {settings['deploy']}, trained from: {start_from}"
    if facts["training"]:
        yield f"  last training: {_in_words(facts['training'])}"
    for file in settings["method_files"]:
        yield f"  method file: {file['path']} ({', '.join(file['methods'])}), {file['digest']}"
    if settings["train_options"]:
        yield f"  train options: {shlex.join(settings['train_options'])}"
    if settings["reference"]:
        yield f"  reference: {settings['reference']['name']}"
    guards = [guard["name"] for guard in settings["guards"]]
    guards += [word.partition(":")[2] for word in settings["classes"]]
    yield f"  guards: {', '.join(guards) or 'none'}"
    yield f"  gates: {', '.join(facts['gates']) or 'none'}"


def _history(facts: Mapping[str, Any]) -> Iterator[str]:
    """The last actions of the ledger in words."""
    lines = facts["history"]
    if not lines:
        return
    last = f"the last {_ACTIONS} of " if len(lines) > _ACTIONS else ""
    yield f"  history, {last}{counted(len(lines), 'action')}:"
    for line in lines[-_ACTIONS:]:
        if line["body"] is None:
            yield "    an action whose text was removed"
            continue
        one = converted(line["body"], Action, facts["path"])
        reason = f"; reason: {one.reason}" if one.reason else ""
        when = f"{one.time[:16].replace('T', ' ')} UTC"
        yield f"    {when}, {one.user} on {one.host}: {_words(one)}{reason}"


def _words(one: Action) -> str:
    """What an action did, in words."""
    week, sources = f"week {one.week}", ", ".join(one.names)
    if one.action == ROLLED_BACK:
        return f"rolled back to {week}, from {counted(len(one.weeks), 'later week')}"
    if one.action == FORGOTTEN:
        return f"{counted(one.pairs or 0, 'pair')} forgotten, see {one.receipt}"
    if one.action == READMITTED:
        return f"{week} takes in deleted pairs again, of {counted(len(one.deletions), 'deletion')}"
    if one.action == REDO_STARTED:
        return f"redo of {week} started{f' ({sources})' if sources else ''}"
    if one.action == HOOK_RUN:
        return f"{week}: --on-{one.hook} ended with exit code {one.exit_code}"
    how = "accepted, not resolved" if one.action == UNRESOLVED else one.action
    about = "; ".join([sources, *_changes(one.settings or {})])
    last = max((each.get("attempt", 0) for each in one.verdicts), default=0)
    against = "; ".join(
        _found(each)
        for each in one.verdicts
        if each.get("outcome") == "fails" and each.get("attempt", 0) == last
    )
    return f"{week} {how} ({about}){': ' if against else ''}{against}"


def _changes(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What changed since the last accepted week; of lists and tasks only the name."""
    for name, values in settings.items():
        was, is_now = values.get("was"), values.get("is")
        is_long = isinstance(was, list | dict) or isinstance(is_now, list | dict)
        yield f"other {name}" if is_long else f"{name} {was} -> {is_now}"


def _changes_of_weeks(facts: Mapping[str, Any]) -> list[tuple[int, list[str]]]:
    """The settings that changed with each of the last weeks in which one did."""
    found: dict[int, list[str]] = {}
    for line in facts["history"]:
        if line["body"] is None:
            continue
        one = converted(line["body"], Action, facts["path"])
        if one.action in {*JUDGED} - {REJECTED, REDO_REJECTED} and one.week is not None:
            found = {week: changes for week, changes in found.items() if week < one.week}
            found |= {one.week: [*_changes(one.settings)]} if one.settings else {}
        elif one.action == ROLLED_BACK:
            found = {week: changes for week, changes in found.items() if week <= (one.week or 0)}
    return [*found.items()][-_WEEKS:]


def _in_words(training: Mapping[str, Any]) -> str:
    unit = "step" if training["steps"] else "epoch"
    length = counted(training[f"{unit}s"], unit)
    return (
        f"{training['architecture']}, {training['method']}, lr {training['lr']:g}, {length}, "
        f"batches of {training['batch_size']}"
    )


def _training(place: Layout, state: State) -> dict[str, Any] | None:
    """How the last accepted week was trained; None without one, or if that cannot be read."""
    with suppress(BadInput, KeyError, TypeError):
        if state.last:
            manifest = CheckpointManifest.read(trained_in(place.week(state.last)))
            settings = manifest.identity["settings"]
            names = ("lr", "epochs", "steps", "batch_size")
            return {
                "architecture": shown(manifest.model or {}),
                "method": manifest.method,
                **{name: settings.get(name) for name in names},
            }
    return None


def _leaks(facts: Mapping[str, Any]) -> str:
    found = {one["week"]: sum(one["left_out"].get(LEAKED, {}).values()) for one in facts["weeks"]}
    return ", ".join(f"{count} of week {week}" for week, count in found.items() if count)


def _current(facts: Mapping[str, Any]) -> str:
    if facts["problem"] is not None:
        return f"{facts['current']}, which is not {facts['accepted']}"
    if facts["accepted"] is None:
        return "none, the start is not complete"
    return facts["current"] or f"no link; the last accepted checkpoint is {facts['accepted']}"


def _week(place: Layout, week: Week) -> dict[str, Any]:
    return {
        "week": week.number,
        "data": week.data,
        "sources": list(week.sources),
        "pairs": week.pairs,
        "checkpoint": week.checkpoint,
        "path": str(place.week(week.number)),
        "time": _judged_at(place.week(week.number)),
        "verdicts": list(week.verdicts),
        "left_out": week.left_out,
    }


def _pending(place: Layout, state: State) -> dict[str, Any] | None:
    """The week being made as a JSON object; None if there is none."""
    week, sources = state.last + 1, list[str]()
    verdicts = list[dict[str, Any]]()
    try:
        attempt, judged = read_attempt(place.pending), Judgement.read(place.pending)
    except BadInput as error:
        outcome = f"damaged: {error}"
    else:
        if attempt is None:
            return None
        week, sources, outcome = attempt.number, list(attempt.sources), "not finished"
        if judged is not None:
            verdicts, outcome = list(judged.verdicts), "rejected"
            if judged.accepted:
                outcome = "accepted, but not recorded yet; run the same update again"
    return {
        "week": week,
        "sources": sources,
        "path": str(place.pending),
        "outcome": outcome,
        "verdicts": verdicts,
    }


def _page(place: Layout, state: State) -> str | None:
    """The page of the week being made, or else of the last one; None if neither has one."""
    weeks = (place.pending, place.week(state.last))
    pages = (week / "report" / PAGE for week in weeks)
    return next((str(page) for page in pages if page.is_file()), None)


def _table(facts: Mapping[str, Any]) -> list[str]:
    """A header, and a line for the start and each of the last weeks.

    They have data, pairs, checkpoint and verdicts.
    """
    rows = [("week", "pairs", "checkpoint", "gates", "data")]
    rows += [("start", "", str(facts["start"]["checkpoint"])[:12], "", facts["start"]["given"])]
    left_out = len(facts["weeks"]) - _WEEKS
    if left_out > 0:
        rows.append(("...", "", "", "", f"--json has all {len(facts['weeks'])} weeks"))
    for week in facts["weeks"][-_WEEKS:]:
        gates = _verdicts(week["verdicts"])
        sources = ", ".join(week["sources"])
        rows.append(
            (str(week["week"]), str(week["pairs"]), week["checkpoint"][:12], gates, sources)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    ]


def _verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """What conditions are about, and what was found, such as "worst_drop.rm 1.25"."""
    shown = (f"{one.get('metric')} {_number(one.get('value'))}" for one in verdicts[:_SHOWN])
    return (", ".join(shown) or "none") + (", ..." if len(verdicts) > _SHOWN else "")


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "not defined"


def _verdict_lines(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in verdicts:
        yield f"{_found(one)}, {one.get('outcome')}"


def _found(verdict: Mapping[str, Any]) -> str:
    """A condition and what was found."""
    data = f" on {verdict['data']}" if verdict.get("data") else ""
    return f"{verdict.get('condition')}: {_number(verdict.get('value'))}{data}"
