"""The Python API: what `import vlcpctl` offers, and the modules that have it.

Commands run in processes of their own; a user's process gets none of their settings and modules.
"""

from __future__ import annotations

import importlib
from typing import Any

from vlcpctl.commands import COMMANDS
from vlcpctl.core import errors

# The function of each command; the package has modules of the names of two.
NAMES = {name: name.replace("-", "_") for name in COMMANDS} | {
    "export": "export_as",
    "methods": "list_methods",
}
ERRORS = ("VlcpError", *(one.__name__ for one in errors.kinds()))
HOMES = {
    **dict.fromkeys(NAMES.values(), "vlcpctl.api.functions"),
    "Report": "vlcpctl.api.results",
    "load_rows": "vlcpctl.api.rows",
    "load_model": "vlcpctl.api.models",
    "Pair": "vlcpctl.api.tasks",
    "Pairs": "vlcpctl.api.tasks",
    "Task": "vlcpctl.api.tasks",
    **dict.fromkeys(ERRORS, errors.__name__),
}


def public(name: str) -> Any:
    """What `vlcpctl.NAME` is, imported now. Raises KeyError for a name that is not in HOMES."""
    return getattr(importlib.import_module(HOMES[name]), name)
