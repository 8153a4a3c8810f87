"""The one place that imports open_clip, without what a model does not need.

open_clip imports timm and transformers (2 CPU seconds) for towers that most models do not have.
They are held back while it is imported, and its two modules that use them are executed again when
a configuration asks for such a tower.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_HELD_BACK = ("timm", "transformers")
_ADAPTERS = {"timm": "open_clip.timm_model", "transformers": "open_clip.hf_model"}


def open_clip(config: dict[str, Any] | None = None) -> ModuleType:
    """The module, able to build the towers of this configuration."""
    if "open_clip" not in sys.modules:
        with _held_back():
            importlib.import_module("open_clip")
    for library in _libraries(config or {}):
        adapter = sys.modules[_ADAPTERS[library]]
        if getattr(adapter, library, None) is None:
            importlib.import_module(library)
            importlib.reload(adapter)
            _renew(adapter)
    return sys.modules["open_clip"]


def preload() -> None:
    """Import what every model needs, so that forked children find it warm."""
    open_clip()


def _libraries(config: dict[str, Any]) -> Iterator[str]:
    if config.get("vision_cfg", {}).get("timm_model_name"):
        yield "timm"
    if config.get("text_cfg", {}).get("hf_model_name"):
        yield "transformers"


def _renew(adapter: ModuleType) -> None:
    """Give open_clip.model the classes of the module executed again."""
    model = sys.modules["open_clip.model"]
    for name in ("TimmModel", "HFTextEncoder"):
        if hasattr(adapter, name):
            setattr(model, name, getattr(adapter, name))


class _HoldBack:
    """A finder that answers for the libraries held back: there is no such module."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in _HELD_BACK:
            raise ModuleNotFoundError(f"{name} is held back while open_clip is imported", name=name)
        return None


@contextmanager
def _held_back() -> Iterator[None]:
    finder = _HoldBack()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
