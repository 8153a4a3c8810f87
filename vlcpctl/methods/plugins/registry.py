"""Finds a method by its name: built in, installed, or defined in a --method-file. Torch-free.

It also knows where the code of a method is from, for the identity of the runs that use it.

Entry points of installed distributions are looked for only where a name is not built in, or where
all methods are listed: reading the metadata of each takes longer than most commands.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcpctl.core.errors import BadInput, UsageError, first_line, unknown_name
from vlcpctl.core.method import Method
from vlcpctl.files.digests import file_sha256
from vlcpctl.methods import TABLE

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from vlcpctl.methods.plugins.method_file import MethodFile

GROUP = "vlcpctl.methods"  # of entry points


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


class MethodRegistry:
    """The methods that a command knows: the built-in ones, plug-ins, and those of its files."""

    def __init__(self, files: Sequence[MethodFile] = ()) -> None:
        """Raises BadInput if two files define one method, or one has the name of a built-in."""
        self.files = tuple({file.digest: file for file in files}.values())
        self._by_name: dict[str, MethodFile] = {}
        for file in self.files:
            for name in file.methods:
                if name in TABLE or name == "der++":
                    raise BadInput(
                        f"{file.path}: method {name!r} is built in; give yours another name"
                    )
                if name in self._by_name:
                    raise BadInput(
                        f"method {name!r} is defined in {self._by_name[name].path} and in "
                        f"{file.path}; give one --method-file for it"
                    )
                self._by_name[name] = file

    @classmethod
    def of(cls, paths: Iterable[Path] | None) -> MethodRegistry:
        """The registry with the files of --method-file, which are loaded."""
        if not paths:
            return cls()
        from vlcpctl.methods.plugins.method_file import load_method_file

        return cls([load_method_file(path) for path in paths])

    def find(self, name: str) -> type[Method]:
        """The method of a name.

        Raises UsageError for an unknown name, and BadInput for a plug-in that cannot be loaded or a
        name that several sources define.
        """
        if name in TABLE:
            return TABLE[name]
        plugins = _installed()
        places = [_shown(entry) for entry in plugins.get(name, ())]
        if name in self._by_name:
            places.append(str(self._by_name[name].path))
        if len(places) > 1:
            raise BadInput(
                f"method {name!r} is defined by {' and by '.join(places)}; rename or uninstall one"
            )
        if name in self._by_name:
            return self._by_name[name].methods[name]
        if places:
            return _load_installed(plugins[name][0])
        known = {*TABLE, *plugins, *self._by_name}
        raise UsageError(
            f"{unknown_name('method', name, known)}; --method-file FILE.py adds one of your own"
        )

    def listed(self, warn: Callable[[str], None]) -> list[type[Method]]:
        """All methods: built-in ones, plug-ins by name, those of files.

        A plug-in that is broken or that another method hides is left out with a warning.
        """
        found = list(TABLE.values())
        for name, entries in sorted(_installed().items()):
            if name in TABLE:
                warn(f"plug-in {name!r} of {_shown(entries[0])} is not used: {name} is built in")
                continue
            try:
                found.append(self.find(name))
            except BadInput as error:
                warn(f"{error}")
        known = {method.name for method in found}
        return found + [self.find(name) for name in self._by_name if name not in known]

    def used_files(self, names: str) -> tuple[MethodFile, ...]:
        """The files that define a method among `NAME+NAME...`."""
        chosen = set(names.split("+"))
        return tuple(file for file in self.files if chosen & file.methods.keys())


def _installed() -> dict[str, list[EntryPoint]]:
    """The entry points of methods by name, without importing them; several may share a name."""
    from importlib.metadata import entry_points  # imports the parser of e-mails, among others

    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=_shown):
        found.setdefault(entry.name, []).append(entry)
    return found


def _shown(entry: EntryPoint) -> str:
    """The distribution of an entry point with its version, for messages."""
    return " ".join(_distribution(entry)) if entry.dist else entry.value


def _load_installed(entry: EntryPoint) -> type[Method]:
    """The method of an entry point.

    Raises BadInput, naming the distribution, if it cannot be imported or is not a method of that
    name.
    """
    from vlcpctl.methods.plugins.checks import check_declaration, guard_hooks

    where = f"plug-in {entry.name!r} of {_shown(entry)}"
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
    record_source(method, MethodSource(_shown(entry), facts))
    return method


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    return (entry.dist.name, entry.dist.version) if entry.dist else ("", "")
