"""Where the code of a method comes from, for the identity of the runs that use it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vlcpctl.core.method import Method
from vlcpctl.files.digests import file_sha256


@dataclass(frozen=True)
class MethodSource:
    """The code of a method that is not built in.

    `shown` names it in messages. `facts` decide whether two runs used the same code: the digest of
    a file, or name and version of a distribution with the digests of the modules of its class.
    """

    shown: str
    facts: dict[str, Any]


_SOURCES: dict[type[Method], MethodSource] = {}


def record_source(method: type[Method], source: MethodSource) -> None:
    """Remember where a method comes from, as long as this process runs."""
    _SOURCES[method] = source


def source_of(method: type[Method]) -> MethodSource | None:
    """Where a method comes from; None for one that is built in."""
    return _SOURCES.get(method)


def facts_of(methods: Iterable[Method]) -> dict[str, dict[str, Any]]:
    """The facts about the code of these methods, by name; built-in ones are left out."""
    sources = {method.name: source_of(type(method)) for method in methods}
    return {name: dict(source.facts) for name, source in sources.items() if source is not None}


def module_digests(method: type[Method]) -> dict[str, str]:
    """The sha256 of the files of the modules that define a class and its bases, by module.

    Modules of vlcpctl and those without a file are left out: bases of a plug-in often are in
    another of its files, and a distribution that is being developed keeps its version.
    """
    names = sorted({base.__module__ for base in method.__mro__})
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return {
        name: f"sha256:{file_sha256(file)}"
        for name, file in files.items()
        if file is not None and name.partition(".")[0] != "vlcpctl"
    }
