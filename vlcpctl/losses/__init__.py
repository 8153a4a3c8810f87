"""Loss terms as pure functions: tensors in, a scalar out.

The modules load on first use, so that methods can name their losses without importing torch.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlcpctl.losses import (
        alignment,
        asymmetric,
        contrastive,
        dark,
        direction,
        distillation,
        geodesic,
        importance,
        incclip,
        masked,
        momentum,
        penalty,
        relations,
        topology,
    )

__all__ = [
    "alignment",
    "asymmetric",
    "contrastive",
    "dark",
    "direction",
    "distillation",
    "geodesic",
    "importance",
    "incclip",
    "masked",
    "momentum",
    "penalty",
    "relations",
    "topology",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"vlcpctl.losses.{name}")
    raise AttributeError(f"module 'vlcpctl.losses' has no attribute {name!r}")
