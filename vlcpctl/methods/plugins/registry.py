"""Finds a method by its name: built in, installed, or defined in a --method-file. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.method import Method
from vlcpctl.methods import TABLE
from vlcpctl.methods.plugins.installed import installed, load_installed, shown
from vlcpctl.methods.plugins.method_file import MethodFile, load_method_file


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
        return cls([load_method_file(path) for path in paths or ()])

    def find(self, name: str) -> type[Method]:
        """The method of a name.

        Raises UsageError for an unknown name, and BadInput for a plug-in that cannot be loaded or a
        name that several sources define.
        """
        if name in TABLE:
            return TABLE[name]
        plugins = installed()
        places = [shown(entry) for entry in plugins.get(name, ())]
        if name in self._by_name:
            places.append(str(self._by_name[name].path))
        if len(places) > 1:
            raise BadInput(
                f"method {name!r} is defined by {' and by '.join(places)}; rename or uninstall one"
            )
        if name in self._by_name:
            return self._by_name[name].methods[name]
        if places:
            return load_installed(plugins[name][0])
        known = {*TABLE, *plugins, *self._by_name}
        raise UsageError(
            f"{unknown_name('method', name, known)}; --method-file FILE.py adds one of your own"
        )

    def listed(self, warn: Callable[[str], None]) -> list[type[Method]]:
        """All methods: built-in ones, plug-ins by name, those of files.

        A plug-in that is broken or that another method hides is left out with a warning.
        """
        found = list(TABLE.values())
        for name, entries in sorted(installed().items()):
            if name in TABLE:
                warn(f"plug-in {name!r} of {shown(entries[0])} is not used: {name} is built in")
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
