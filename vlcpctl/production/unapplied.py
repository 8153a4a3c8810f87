"""Settings that are given with data of which no week is made: they would not be applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlcpctl.core.errors import OutputExists
from vlcpctl.production.lines import Call
from vlcpctl.production.settings import NONE, Guard, Settings

_OPTIONS = {"assignments": "set", "classes": "guard-classes", "guards": "guard"}


def refuse_unapplied(why: str, given: Mapping[str, Any], recorded: Settings, call: Call) -> None:
    """Raise OutputExists, naming the given settings that differ from the recorded ones.

    `why` says of which data no week is made.
    """
    names = [
        f"--{_OPTIONS.get(name, name.replace('_', '-'))}"
        for name, value in given.items()
        if _comparable(value) != _comparable(getattr(recorded, name))
    ]
    names += ["--fresh-state"] if call.fresh_state else []
    names += ["--readmit"] if call.readmit else []
    names += ["--accept-inexact"] if call.accept_inexact else []
    if names:
        raise OutputExists(
            f"{why}, so that {', '.join(sorted(names))} would not be applied; leave it out, or "
            "give it with the data of another week"
        )


def _comparable(value: object) -> object:
    """A setting as it is recorded; of guards, which `forget` may have rewritten, the paths."""
    if isinstance(value, tuple):
        if value == (NONE,):
            return ()
        return tuple(one.path if isinstance(one, Guard) else one for one in value)
    return value
