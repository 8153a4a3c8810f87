"""Joint training on all tasks at once; the upper bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.method import Method


@dataclass(frozen=True, kw_only=True)
class Joint(Method):
    """The contrastive loss on several tasks together, from a model that has seen none of them."""

    name: ClassVar[str] = "joint"
    title: ClassVar[str] = "Joint training on all tasks, the upper bound"
    preset: ClassVar[str] = "ctp"
    from_unseen: ClassVar[bool] = True
