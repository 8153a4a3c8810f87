"""Continual vision-language pretraining from the command line, and from Python.

Names of `vlcpctl.api` are imported when they are used; their types are in __init__.pyi.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.4.0.dev0"


def __getattr__(name: str) -> Any:
    # Not `from vlcpctl import api`, which would ask here for "api".
    from vlcpctl.api import HOMES, public

    if name not in HOMES:
        raise AttributeError(f"module 'vlcpctl' has no attribute {name!r}", name=name)
    globals()[name] = found = public(name)
    return found


def __dir__() -> list[str]:
    from vlcpctl.api import HOMES

    return sorted({*globals(), *HOMES})
