"""The commands of --on-accept and --on-reject, which a shell runs when a week has been judged.

They are given with each call and never recorded: a state that came from elsewhere runs nothing.
Each runs at least once: what was killed before its exit code is in the ledger runs again with the
next call for the same data.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.ending import at_signal
from vlcpctl.core.errors import OutputExists
from vlcpctl.core.words import printable
from vlcpctl.production.attempt import VERDICT_FILE
from vlcpctl.production.hook_variables import (
    CHECKPOINT,
    HOOK,
    REPORT,
    STATE,
    VERDICT,
    WEEK,
)
from vlcpctl.production.layout import PAGE, Layout
from vlcpctl.production.ledger import HOOK_RUN, JUDGED, ROLLED_BACK, Action, record, require_ledger
from vlcpctl.production.state import read_state

ACCEPT, REJECT = "accept", "reject"
_SIGNAL = 128  # and the number of the signal: the exit code of a command that it killed


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The commands of a call; None for those that are not given."""

    on_accept: str | None = None
    on_reject: str | None = None

    def of(self, which: str) -> str | None:
        """The command of --on-accept or --on-reject."""
        return self.on_accept if which == ACCEPT else self.on_reject

    def comments(self) -> Iterator[str]:
        """What they are, as lines of a dry run."""
        for which, how in ((ACCEPT, "accepted"), (REJECT, "rejected")):
            command = self.of(which)
            if command is not None:
                yield f"# once it is {how}, --on-{which} is run: {printable(command)}"


def why_not(place: Layout, which: str, number: int) -> str | None:
    """Why the hook of a judged week is not to run; None if it is.

    That of an accepted week runs only if it is the last one: what a later one has published stays.
    """
    if which == ACCEPT and read_state(place).last != number:
        return f"week {number} is not the last one"
    return "it has succeeded" if _has_succeeded(place, which, number) else None


def said_of_missed(place: Layout, hooks: Hooks, last: int) -> str | None:
    """A sentence if --on-accept has run for earlier weeks and not succeeded for the last one."""
    if hooks.on_accept is None or last == 0 or _has_succeeded(place, ACCEPT, last):
        return None
    if not any(one is not None and one.hook == ACCEPT for one in require_ledger(place).actions):
        return None
    return (
        f"the --on-accept of week {last} has not succeeded; an update with the data of that week "
        "runs it again"
    )


def _has_succeeded(place: Layout, which: str, number: int) -> bool:
    """Whether the hook has ended with 0 since the week was judged, or became the last one again."""
    for one in reversed(require_ledger(place).actions):
        if one is None or one.week != number:
            continue
        if one.action == HOOK_RUN and (one.hook, one.exit_code) == (which, 0):
            return True
        if one.action in {*JUDGED, ROLLED_BACK}:
            return False
    return False


def run_hook(
    place: Layout, hooks: Hooks, which: str, week: Path, number: int, observe: Callable[[str], None]
) -> int | None:
    """Run the hook of the judged week in a directory, if it is to run; its exit code, or None.

    Only for the holder of the lock. The exit code is in the ledger afterwards.
    """
    command = hooks.of(which)
    if command is None:
        return None
    if (why := why_not(place, which, number)) is not None:
        say(f"{place.root}: week {number}: --on-{which} is not run: {why}")
        return None
    checkpoint = CheckpointManifest.read(week / "checkpoint").content
    say(f"{place.root}: week {number}: --on-{which} is run")
    code = _run(command, {HOOK: which, **_facts(place, week, number)})
    observe("hook")
    action = Action(action=HOOK_RUN, week=number, checkpoint=checkpoint, hook=which, exit_code=code)
    record(place, [action])
    return code


def _facts(place: Layout, week: Path, number: int) -> dict[str, str]:
    """What the command is told; whole paths, since it may change its directory."""
    paths = {
        STATE: place.root,
        CHECKPOINT: week / "checkpoint",
        REPORT: week / "report" / PAGE,
        VERDICT: week / VERDICT_FILE,
    }
    return {WEEK: str(number), **{name: os.path.abspath(path) for name, path in paths.items()}}


def _run(command: str, variables: dict[str, str]) -> int:
    """Let a shell run the command; its output goes to stderr. Its exit code as a shell has it."""
    with subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=2,
        env={**os.environ, **variables},
        process_group=0,
    ) as process:

        def stop() -> None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

        with at_signal(stop):
            code = process.wait()
    return _SIGNAL - code if code < 0 else code


def refuse_in_hook(place: Layout) -> None:
    """Raise OutputExists in a hook of this state, which would wait for its own end."""
    which, state = os.environ.get(HOOK), os.environ.get(STATE)
    if which and state and os.path.realpath(state) == os.path.realpath(place.root):
        raise OutputExists(
            f"{place.root} is locked by the update whose --on-{which} this is, until it ends; run "
            f"this command after that update (outside of it, unset {HOOK})"
        )
