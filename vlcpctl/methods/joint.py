"""Joint training on all tasks at once; the upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.method import Method


@dataclass(frozen=True, kw_only=True)
class Joint(Method):
    """Train with the contrastive loss on several tasks together, starting from an untrained one."""

    name: ClassVar[str] = "joint"
    title: ClassVar[str] = "Joint training on all tasks, the upper bound"
    preset: ClassVar[str] = "ctp"
    from_unseen: ClassVar[bool] = True
