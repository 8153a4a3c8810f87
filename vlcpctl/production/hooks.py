"""The commands of --on-accept and --on-reject, which a shell runs when a week has been judged.

They are given with each call and never recorded: a state that came from elsewhere runs nothing.
Each runs at least once: what was killed before its exit code was recorded runs again with the next
call for the same data.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from vlcpctl.core.console import say
from vlcpctl.core.errors import OutputExists
from vlcpctl.production.hook_variables import CHECKPOINT, HOOK, REPORT, STATE, VERDICT, WEEK
from vlcpctl.production.options import UpdateOptions
from vlcpctl.production.state import PASSED, Attempt, State

ACCEPT, REJECT = "accept", "reject"
_SIGNAL = 128  # and the number of the signal: the exit code of a command that it killed


def run_hook(state: State, request: UpdateOptions, made: Attempt) -> int | None:
    """Run the hook for the verdict of an attempt; its exit code, or None if it is not to run.

    That of an accepted week runs only if it is the last one: what a later one has published stays.
    """
    which = ACCEPT if made.status == PASSED else REJECT
    command = request.on_accept if which == ACCEPT else request.on_reject
    made = state.attempts[made.id]
    if command is None:
        return None
    why = "it has succeeded" if made.hook == 0 else ""
    if which == ACCEPT and made.id != state.counting[-1]:
        why = f"week {made.week} is not the last one"
    if why:
        say(f"{state.root}: week {made.week}: --on-{which} is not run: {why}")
        return None
    state.point()
    say(f"{state.root}: week {made.week}: --on-{which} is run")
    paths = {
        STATE: state.root,
        CHECKPOINT: state.made(made, "checkpoint"),
        REPORT: state.page(made),
        VERDICT: state.made(made, "report") / "summary.json",
    }
    whole = {name: os.path.abspath(path) for name, path in paths.items()}
    code = subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=2,
        env={**os.environ, HOOK: which, WEEK: str(made.week), **whole},
        check=False,
    ).returncode
    code = _SIGNAL - code if code < 0 else code
    state.observe("hook")
    state.attempts[made.id] = replace(made, hook=code)
    state.change("hook", made, hook=which, exit_code=code)
    return code


def refuse_in_hook(root: Path) -> None:
    """Raise OutputExists in a hook of this state, which would wait for its own end."""
    which, state = os.environ.get(HOOK), os.environ.get(STATE)
    if which and state and os.path.realpath(state) == os.path.realpath(root):
        raise OutputExists(
            f"{root} is locked by the update whose --on-{which} this is, until it ends; run this "
            f"command after that update (outside of it, unset {HOOK})"
        )
