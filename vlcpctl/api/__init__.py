"""The Python API: what `import vlcpctl` offers, and the modules that have it.

Commands run in processes of their own; a user's process gets none of their settings and modules.
"""

from __future__ import annotations

import importlib
from typing import Any

from vlcpctl.core import errors

# Functions of the same names as commands, by what they return.
PATH, ROWS, FACTS, REPORT = "Path", "list[dict[str, Any]]", "dict[str, Any]", "Report"
FUNCTIONS = {
    "sample": PATH,
    "split": PATH,
    "buffer": PATH,
    "train_step": PATH,
    "import_checkpoint": PATH,
    "merge": PATH,
    "interpolate": PATH,
    "eval_retrieval": ROWS,
    "eval_zeroshot": ROWS,
    "forgetting_report": REPORT,
    "update": PATH,
    "inspect": FACTS,
}
ERRORS = ["VlcpError", *(one.__name__ for one in errors.kinds())]
HOMES = {
    **dict.fromkeys(FUNCTIONS, "vlcpctl.api.functions"),
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
    module = importlib.import_module(HOMES[name])
    return module.function(name) if name in FUNCTIONS else getattr(module, name)
