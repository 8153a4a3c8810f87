"""A method that changes nothing and looks at the gradients that another one gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vlcpctl.core.method import Method, Run

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class GradientWatch(Method):
    """Counts the steps whose gradients are finite, and names the weights where one is not.

    Train with it beside the method to look at, in this process.
    """

    name: ClassVar[str] = "watch"
    title: ClassVar[str] = "Look at the gradients"
    preset: ClassVar[str] = "tiny"
    steps: ClassVar[list[int]] = []
    broken: ClassVar[set[str]] = set()

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Look at the gradients of this step."""
        self.steps.append(run.step)
        self.broken.update(name for name, grad in grads.items() if not grad.isfinite().all())
