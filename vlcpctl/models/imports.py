"""Imports open_clip without the libraries that a run does not use; nothing else imports it.

`import open_clip` takes 8.5 CPU seconds, this 3.6, of which torch alone takes 2.5. Two imports are
delayed until they are needed: timm and transformers (1.7 s), which only some towers use, and
torch._dynamo (3.2 s), which torchvision imports for a function that is not called here. The first
optimizer loads torch._dynamo.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple


class _Adapter(NamedTuple):
    """A module of open_clip that can be imported without its library until its class is used."""

    library: str
    module: str
    class_name: str


_TIMM = _Adapter("timm", "open_clip.timm_model", "TimmModel")
_TRANSFORMERS = _Adapter("transformers", "open_clip.hf_model", "HFTextEncoder")

_UTILS = "torch._dynamo.utils"


def open_clip(config: dict[str, Any] | None = None) -> ModuleType:
    """The package open_clip, with the libraries that the towers of this configuration need."""
    if "open_clip" not in sys.modules:
        with _halted(_TIMM.library, _TRANSFORMERS.library), _utils_on_demand():
            importlib.import_module("open_clip")
    if config and config["vision_cfg"].get("timm_model_name"):
        _complete(_TIMM)
    if config and config["text_cfg"].get("hf_model_name"):
        _complete(_TRANSFORMERS)
    return sys.modules["open_clip"]


def preload(*, optimizer: bool = True) -> None:
    """Import in advance what each forked child would otherwise import again."""
    open_clip()
    if optimizer:
        importlib.import_module("torch._dynamo")


def _complete(adapter: _Adapter) -> None:
    """Reload an adapter, now with its library, and update the class in open_clip.model."""
    module = importlib.import_module(adapter.module)
    if getattr(module, adapter.library) is None:
        importlib.import_module(adapter.library)
        module = importlib.reload(module)
        users = importlib.import_module("open_clip.model")
        setattr(users, adapter.class_name, getattr(module, adapter.class_name))


@contextmanager
def _halted(*libraries: str) -> Iterator[None]:
    """Make imports of these libraries raise ModuleNotFoundError (None in sys.modules does that)."""
    halted = [library for library in libraries if library not in sys.modules]
    sys.modules.update(dict.fromkeys(halted))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for library in halted:
            del sys.modules[library]


@contextmanager
def _utils_on_demand() -> Iterator[None]:
    """Within the block torch._dynamo.utils is a stand-in with the function torchvision imports."""
    if _UTILS not in sys.modules:
        sys.modules[_UTILS] = _StandIn(_UTILS)
    try:
        yield
    finally:
        _withdraw_stand_in()


class _StandIn(ModuleType):
    """Replaced by the real module as soon as anything else in it is used."""

    @staticmethod
    def is_compile_supported(device_type: str) -> bool:
        _withdraw_stand_in()
        return bool(importlib.import_module(_UTILS).is_compile_supported(device_type))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks these up
            raise AttributeError(name)
        _withdraw_stand_in()
        return getattr(importlib.import_module(_UTILS), name)


def _withdraw_stand_in() -> None:
    if isinstance(sys.modules.get(_UTILS), _StandIn):
        del sys.modules[_UTILS]
