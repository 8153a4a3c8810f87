"""What every layer shares: errors, words, devices, seeds, batches, the method protocol."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlcpctl.core import devices, params

__all__ = ["devices", "params"]


def __getattr__(name: str) -> ModuleType:
    # Loaded on first use: they import torch, which takes seconds; most of core does not need it.
    if name in __all__:
        return importlib.import_module(f"vlcpctl.core.{name}")
    raise AttributeError(f"module 'vlcpctl.core' has no attribute {name!r}")
