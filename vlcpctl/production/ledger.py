"""history.ndjson: what was done to a state directory, when and by whom, one line for each action.

`digest` of a line is the sha256 of that of the line before it and of `body_digest`, which is the
sha256 of `body`. The chain does not need the bodies: one with personal data can be replaced by
null. It shows accidents and careless edits, not someone who computes the digests again.

A line is on the disk before the action that it is about is complete, and is written once: what a
kill leaves half-done is repeated, and so is its line, unless it stands at the end already.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.deletion.receipt import Receipt
from vlcpctl.files.ids import canonical_json
from vlcpctl.files.inputs import converted, open_regular, parse_json
from vlcpctl.files.outputs import Output, naming_output, sync
from vlcpctl.production.attempt import Attempt, Judgement, Training
from vlcpctl.production.layout import Layout
from vlcpctl.production.records import as_json
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import State

SCHEMA = "vlcpctl.history/1"
STARTED, ACCEPTED, UNRESOLVED, REJECTED = "started", "accepted", "unresolved", "rejected"
ROLLED_BACK, FORGOTTEN, READMITTED = "rolled back", "forgotten", "readmitted"
REDO_STARTED, REDONE, REDO_REJECTED = "redo started", "redone", "rejected in a redo"
HOOK_RUN = "hook"  # --on-accept or --on-reject was run
JUDGED = frozenset({ACCEPTED, UNRESOLVED, REJECTED, REDONE, REDO_REJECTED})
_ASIDE = frozenset({FORGOTTEN, HOOK_RUN})  # what is done between the actions about weeks
_BY_WHOM = frozenset({"time", "user", "host", "salt"})  # not what an action is
_OF_VERDICT = ("condition", "data", "value", "outcome")
_REPAIR = "; restore the file from a backup, or move it away, and the next action begins another"
_PATIENCE_S = 10.0  # another process holds the lock for one line


@dataclass(frozen=True, kw_only=True)
class Action:
    """The body of a line, without fields that do not apply; `weeks` were taken back.

    `settings` changed since the last accepted week, `deletions` are ids of requests of `forget`.
    """

    action: str
    week: int | None = None
    weeks: tuple[int, ...] = ()
    data: str | None = None
    names: tuple[str, ...] = ()
    settings: dict[str, dict[str, Any]] | None = None
    checkpoint: str | None = None
    verdicts: tuple[dict[str, Any], ...] = ()
    deletions: tuple[str, ...] = ()
    pairs: int | None = None
    receipt: str | None = None
    hook: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    time: str = ""
    user: str = ""
    host: str = ""


class _Line(msgspec.Struct):
    schema: str
    digest: str
    previous: str
    body_digest: str
    body: dict[str, Any] | None


@dataclass(frozen=True)
class Ledger:
    """The lines of a file as they stand in it, and the actions in them; None where a body was.

    `problem` says what is wrong with the chain. After `size` bytes there is at most a part of a
    line, which an append that was killed has left.
    """

    lines: tuple[dict[str, Any], ...] = ()
    actions: tuple[Action | None, ...] = ()
    problem: str | None = None
    size: int = 0


class Rejection(NamedTuple):
    """A week that was rejected: its number, the id of its data, and its checkpoint."""

    number: int
    data: str
    checkpoint: str


def started(state: State, attempt: Attempt) -> list[Action]:
    """The lines of a week that is begun: it, and the deletions whose pairs it takes in again."""
    begun = _of_week(STARTED, attempt, settings=_changed(state.settings, attempt.settings))
    if not attempt.readmitted:
        return [begun]
    return [begun, _of_week(READMITTED, attempt, deletions=attempt.readmitted)]


def judged_as(state: State, attempt: Attempt, judged: Judgement, checkpoint: str) -> Action:
    """The line of a week that is accepted or rejected; `state` is that before it."""
    accepted = UNRESOLVED if judged.unresolved else ACCEPTED
    last = Training(attempt=0, accepted=judged.accepted, verdicts=judged.verdicts)
    verdicts = tuple(
        {**{name: one[name] for name in _OF_VERDICT if one.get(name) is not None}, "attempt": each}
        for each, training in enumerate(judged.attempts or (last,))
        for one in training.verdicts
    )
    return _of_week(
        accepted if judged.accepted else REJECTED,
        attempt,
        settings=_changed(state.settings, attempt.settings),
        checkpoint=checkpoint,
        verdicts=verdicts,
    )


def _of_week(action: str, attempt: Attempt, **more: Any) -> Action:
    return Action(
        action=action,
        week=attempt.number,
        data=attempt.data,
        names=attempt.sources,
        reason=attempt.reason,
        **more,
    )


def _changed(before: Settings, now: Settings) -> dict[str, dict[str, Any]]:
    names = [one.name for one in fields(now)]
    pairs = {name: [as_json(getattr(one, name)) for one in (before, now)] for name in names}
    return {name: {"was": was, "is": is_} for name, (was, is_) in pairs.items() if was != is_}


def record_deletion(receipt: Receipt) -> None:
    """Add a deletion to the ledger of each state that it searched, once.

    Raises BadInput if one cannot be read, and OutputExists if it is being written.
    """
    for stop_list in map(Path, receipt.stop_lists):
        place = Layout(stop_list.parent.parent)
        action = Action(
            action=FORGOTTEN,
            deletions=(receipt.request,),
            pairs=len(receipt.keys),
            receipt=os.path.relpath(receipt.path, place.root),
            reason=receipt.ticket,
        )
        record(place, [action])


def record(place: Layout, actions: Sequence[Action]) -> None:
    """Append the lines of these actions that are not there yet, and wait until they are on disk.

    An action about weeks is there if it stands at the end, whatever was forgotten or run since; one
    of `forget` if it is anywhere; one of a hook never is, since each run is another. What a killed
    append left is removed. Raises BadInput if the file cannot be read or its chain is broken, and
    OutputExists if another process keeps its lock.
    """
    path = place.history
    with Output(path).locked(wait_s=_PATIENCE_S):
        ledger = require_ledger(place)
        bodies = _without_recorded(ledger, [_body(one) for one in actions])
        if not bodies:
            return
        is_new = not path.exists()
        previous = ledger.lines[-1]["digest"] if ledger.lines else ""
        texts = []
        for body in bodies:
            line = _line(previous, body)
            previous = line["digest"]
            texts.append(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        with naming_output(path), path.open("ab") as file:
            file.truncate(ledger.size)
            file.write("".join(texts).encode())
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync(place.root)


def _without_recorded(ledger: Ledger, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = [_identity(line["body"] or {}) for line in ledger.lines]
    wanted = [_identity(one) for one in bodies]
    if wanted[0]["action"] == HOOK_RUN:
        return bodies
    if wanted[0]["action"] == FORGOTTEN:
        return [body for body, one in zip(bodies, wanted, strict=True) if one not in known]
    of_weeks = [one for one in known if one.get("action") not in _ASIDE]
    last = len(of_weeks)
    there = (
        count for count in range(len(wanted), 0, -1) if of_weeks[last - count :] == wanted[:count]
    )
    return bodies[next(there, 0) :]


def _identity(body: dict[str, Any]) -> dict[str, Any]:
    """What an action is. A killed rollback may be completed by a call that knows no reason."""
    others = _BY_WHOM | {"reason"} if body.get("action") == ROLLED_BACK else _BY_WHOM
    return {name: one for name, one in body.items() if name not in others}


def _body(action: Action) -> dict[str, Any]:
    """The body of a new line. Its salt keeps what was removed from being guessed by its digest."""
    found = {one.name: as_json(getattr(action, one.name)) for one in fields(action)}
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container
        user = str(os.getuid())
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "user": user,
        "host": socket.gethostname(),
        **{name: one for name, one in found.items() if one not in (None, "", [])},
        "salt": secrets.token_hex(16),
    }


def _line(previous: str, body: dict[str, Any]) -> dict[str, Any]:
    of_body = _sha256(canonical_json(body))
    digest = _sha256(previous + of_body)
    return {
        "schema": SCHEMA,
        "digest": digest,
        "previous": previous,
        "body_digest": of_body,
        "body": body,
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def require_ledger(place: Layout) -> Ledger:
    """The ledger of a state directory. Raises BadInput if it cannot be read, or is broken."""
    ledger = read_ledger(place)
    if ledger.problem is not None:
        raise BadInput(ledger.problem)
    return ledger


def read_ledger(place: Layout) -> Ledger:
    """The ledger of a state directory as far as its lines can be read; empty if there is none.

    Raises BadInput if the file cannot be read at all.
    """
    path = place.history
    if not os.path.lexists(path):
        return Ledger()
    try:
        with open_regular(path) as file:
            texts = file.read().split(b"\n")[:-1]
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    lines, actions, problem, previous = [], [], None, ""
    fault: str | None
    for number, text in enumerate(texts, start=1):
        where = f"{path}:{number}"
        try:
            found, line, action = _read(text, where)
        except BadInput as error:
            fault = str(error)
        else:
            fault = _fault(line, previous, where)
            lines.append(found)
            actions.append(action)
            previous = line.digest
        if fault is not None and problem is None:
            problem = fault + _REPAIR
    size = sum(len(text) + 1 for text in texts)
    return Ledger(tuple(lines), tuple(actions), problem, size)


def _read(text: bytes, where: str) -> tuple[dict[str, Any], _Line, Action | None]:
    """A line, whatever its place in the chain. Raises BadInput if it cannot be read."""
    try:
        found = parse_json(text)
    except ValueError as error:
        raise BadInput(f"{where} is not readable JSON: {error}") from error
    line = converted(found, _Line, where)
    if line.schema != SCHEMA:
        raise BadInput(f"{where} has schema {line.schema!r:.80}; this version reads {SCHEMA}")
    return found, line, None if line.body is None else converted(line.body, Action, where)


def _fault(line: _Line, previous: str, where: str) -> str | None:
    """What is wrong with a line that should follow the one with the digest `previous`."""
    is_same = line.body is None or _sha256(canonical_json(line.body)) == line.body_digest
    if not is_same or _sha256(line.previous + line.body_digest) != line.digest:
        return f"{where} has changed since it was written"
    if line.previous != previous:
        return f"{where} does not follow the line before it: lines are missing or moved"
    return None


def rejections(ledger: Ledger) -> list[Rejection]:
    """The rejected weeks, each once, in their order; without those that a rollback took back."""
    found: dict[Rejection, None] = {}
    for one in ledger.actions:
        if one is None or one.week is None:
            continue
        if one.action == REJECTED:
            found[Rejection(one.week, one.data or "", one.checkpoint or "")] = None
        elif one.action == ROLLED_BACK:
            found = {key: None for key in found if key.number <= one.week}
    return list(found)
