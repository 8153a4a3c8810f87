"""Learning-rate schedules: functions of the step, and the plateau rule on validation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vlcpctl.engine.settings import Settings


def learning_rate(settings: Settings, step: int, steps: int, drops: int) -> float:
    """The rate of step `step` of `steps`, after `drops` plateaus.

    Cosine runs from lr to min_lr after a linear warm-up; min_lr itself is not reached (as in CTP).

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
    """Counts validations without progress; more than the patience make a drop."""

    best: float | None = None
    stalled: int = 0
    drops: int = 0

    def after(self, loss: float, patience: int) -> Plateau:
        """The state after one more validation loss.

        >>> state = Plateau().after(1.0, 1).after(1.0, 1).after(1.0, 1)
        >>> state.drops
        1
        """
        if self.best is None or loss < self.best:
            return replace(self, best=loss, stalled=0)
        if self.stalled < patience:
            return replace(self, stalled=self.stalled + 1)
        return replace(self, stalled=0, drops=self.drops + 1)
