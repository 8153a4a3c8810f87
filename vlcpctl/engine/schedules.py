"""Learning-rate schedules: pure functions of the optimizer step, and the plateau rule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vlcpctl.engine.settings import Settings


def learning_rate(settings: Settings, step: int, steps: int, drops: int) -> float:
    """The learning rate of step `step` (from 0) of `steps`, after `drops` plateaus.

    Cosine decays from lr towards min_lr after a linear warm-up. The last step is just above min_lr,
    as in CTP's code.

    >>> learning_rate(Settings(lr=1.0, schedule="cosine"), 5, 10, 0)
    0.5
    """
    warm = round(settings.warmup * steps)
    if step < warm:
        return settings.lr * (step + 1) / warm
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "plateau":
        return max(settings.min_lr, settings.lr * PLATEAU_FACTOR**drops)
    share = (step - warm) / max(1, steps - warm)
    return settings.min_lr + (settings.lr - settings.min_lr) * (1 + math.cos(math.pi * share)) / 2


PLATEAU_FACTOR = 0.1  # DHA, section 4.1


@dataclass(frozen=True)
class Plateau:
    """Counts validations without a lower loss; one more than the patience is a drop."""

    best: float | None = None
    stalled: int = 0
    drops: int = 0

    def after(self, loss: float, patience: int) -> Plateau:
        """The state after one more validation, with this loss.

        >>> state = Plateau().after(1.0, 1).after(1.0, 1).after(1.0, 1)
        >>> state.drops
        1
        """
        if self.best is None or loss < self.best:
            return replace(self, best=loss, stalled=0)
        if self.stalled < patience:
            return replace(self, stalled=self.stalled + 1)
        return replace(self, stalled=0, drops=self.drops + 1)
