"""Methods of installed distributions: the entry points of the group `vlcpctl.methods`.

They are looked for only where a name is not built in, or where all methods are listed: reading the
metadata of every installed distribution takes longer than most commands.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.core.method import Method
from vlcpctl.methods.plugins.declaration import check_declaration
from vlcpctl.methods.plugins.guarding import guard_hooks
from vlcpctl.methods.plugins.source import MethodSource, module_digests, record_source

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "vlcpctl.methods"


def installed() -> dict[str, list[EntryPoint]]:
    """The entry points of methods by name, without importing them; several may share a name."""
    from importlib.metadata import entry_points  # imports the parser of e-mails, among others

    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=shown):
        found.setdefault(entry.name, []).append(entry)
    return found


def shown(entry: EntryPoint) -> str:
    """The distribution of an entry point with its version, for messages."""
    return " ".join(_distribution(entry)) if entry.dist else entry.value


def load_installed(entry: EntryPoint) -> type[Method]:
    """The method of an entry point.

    Raises BadInput, naming the distribution, if it cannot be imported or is not a method of that
    name.
    """
    where = f"plug-in {entry.name!r} of {shown(entry)}"
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            method = entry.load()
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{where} cannot be imported from {entry.value}: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise BadInput(f"{where}: {entry.value} is not a class derived from Method")
    check_declaration(method, where)
    guard_hooks(method)
    if method.name != entry.name:
        raise BadInput(
            f"{where}: class {method.__qualname__} is named {method.name!r}; the entry point must "
            "have the name of the method"
        )
    name, version = _distribution(entry)
    facts = {"distribution": name, "version": version, "modules": module_digests(method)}
    record_source(method, MethodSource(shown(entry), facts))
    return method


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    return (entry.dist.name, entry.dist.version) if entry.dist else ("", "")
