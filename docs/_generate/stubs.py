"""The functions of `import vlcpctl`: a table, and vlcpctl/__init__.pyi for editors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import vlcpctl
from _generate.markdown import prose
from _generate.markdown import table as table_of
from vlcpctl.api import FACTS, FUNCTIONS, HOMES, PATH, REPORT, ROWS
from vlcpctl.commands import COMMANDS

_RESULTS = {
    PATH: "the path of the result",
    ROWS: "rows, a list of dicts; with `out` the path",
    FACTS: "a dict",
    REPORT: "a `Report`",
}
FILE = Path(vlcpctl.__file__).with_suffix(".pyi")
_HEAD = """# Made by docs/generate.py of the options of the commands.
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload
"""
_NAMES = """
__version__: str
StrPath = str | os.PathLike[str]
Row = Mapping[str, Any]
"""


def text() -> str:
    """The text of the file, as ruff would format it."""
    homes = sorted((home, name) for name, home in HOMES.items() if name not in FUNCTIONS)
    imports = [f"from {home} import {name} as {name}" for home, name in homes]
    return "\n".join([_HEAD, *imports, _NAMES, *map(_function, FUNCTIONS)]).replace(
        "..\n\n", "..\n"
    )


def table() -> str:
    """Every function with its command and what it returns."""
    rows = []
    for name, kind in FUNCTIONS.items():
        command = name.replace("_", "-")
        link = f"[vlcpctl {command}](../commands/{command}.md)"
        result = "the path of the checkpoint" if name == "update" else _RESULTS[kind]
        rows.append((f"`{name}`", link, prose(COMMANDS[command].summary), result))
    return table_of(("function", "runs", "", "returns"), rows)


def _function(name: str) -> str:
    """The definitions of a function: two if it returns rows unless they go to a file."""
    signature = inspect.signature(getattr(vlcpctl, name))
    if FUNCTIONS[name] != ROWS:
        summary = COMMANDS[name.replace("_", "-")].summary
        return _definition(name, signature, f'\n    """{summary}"""')
    out = signature.parameters["out"]
    found = ""
    for kind, default, result in (("None", None, ROWS), ("StrPath", out.empty, "Path")):
        changed = out.replace(annotation=kind, default=default)
        parameters = [changed if one is out else one for one in signature.parameters.values()]
        one = signature.replace(parameters=parameters, return_annotation=result)
        found += f"@overload\n{_definition(name, one, ' ...')}"
    return found


def _definition(name: str, signature: inspect.Signature, body: str) -> str:
    parts = "".join(f"    {word},\n" for word in _words(signature))
    return f"def {name}(\n{parts}) -> {signature.return_annotation}:{body}\n"


def _words(signature: inspect.Signature) -> Iterator[str]:
    """The parameters as they are written, with the * before those that are keywords."""
    before = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for one in signature.parameters.values():
        if one.kind == one.KEYWORD_ONLY and before == one.POSITIONAL_OR_KEYWORD:
            yield "*"
        star = "*" if one.kind == one.VAR_POSITIONAL else ""
        default = "" if one.default is one.empty else f" = {one.default!r}".replace("'", '"')
        yield f"{star}{one.name}: {one.annotation}{default}"
        before = one.kind
