"""Packages and modules of other libraries whose costly imports are put off until they are used.

Both kinds give way to the real thing as soon as anything else than the names listed is used, so
that other versions of a library work as well: they are imported more slowly.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package whose submodules are imported when they are used, and whose `__init__` is not run.

    It is run, and makes this an ordinary module, when anything is used that is neither a submodule
    in `_parts` nor a name in `_homes`, which says from which submodule the package has it. All of
    this is imported within the context `_around`.
    """

    _parts: Collection[str]
    _homes: Mapping[str, str]
    _around: Callable[[], AbstractContextManager[None]]

    def __getattr__(self, name: str) -> Any:
        part = self._homes.get(name, name)
        if part.startswith("_"):  # the import system looks some of these up
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        if part in self._parts:
            with self._around():
                module = importlib.import_module(f"{self.__name__}.{part}")
            return module if part == name else getattr(module, name)
        _run_init(self)
        return getattr(self, name)


def install(
    name: str,
    parts: Collection[str] = (),
    homes: Mapping[str, str] | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ModuleType:
    """The package of this name in sys.modules, put there as a LazyPackage unless it is imported.

    Raises ModuleNotFoundError if it is not installed.
    """
    if name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        package = importlib.util.module_from_spec(spec)
        vars(package).update(_parts=parts, _homes=homes or {}, _around=around)
        package.__class__ = LazyPackage
        sys.modules[name] = package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, package)
    return sys.modules[name]


def whole(name: str) -> ModuleType:
    """The package of this name, imported, and none that puts anything off."""
    package = importlib.import_module(name)
    if isinstance(package, LazyPackage):
        _run_init(package)
    return package


def _run_init(package: ModuleType) -> None:
    spec = package.__spec__
    assert spec is not None, "the package was made from its spec"
    assert spec.loader is not None, "the package is a file"
    package.__class__ = ModuleType  # first, since what it imports may look names up in it
    try:
        with vars(package)["_around"]():
            spec.loader.exec_module(package)
    except BaseException:
        package.__class__ = LazyPackage
        raise


@contextmanager
def put_off(stand_ins: Iterable[StandIn]) -> Iterator[None]:
    """Within the block these stand-ins are the modules of their names.

    A module that is imported already stays.
    """
    with ExitStack() as undo:
        for stand_in in stand_ins:
            if stand_in.__name__ not in sys.modules:
                sys.modules[stand_in.__name__] = stand_in
                undo.callback(stand_in.withdraw)
        yield


class StandIn(ModuleType):
    """A module with functions or classes that import it when they are called.

    Replaced by the real module as soon as anything else in it is used.
    """

    def __init__(self, name: str, functions: Collection[str]) -> None:
        super().__init__(name)
        self._functions = frozenset(functions)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks these up
            raise AttributeError(name)
        if name not in self._functions:
            return getattr(self._real(), name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            return getattr(self._real(), name)(*arguments, **keywords)

        return call

    def _real(self) -> ModuleType:
        self.withdraw()
        return importlib.import_module(self.__name__)

    def withdraw(self) -> None:
        """Take this out of sys.modules, if it is still there."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
