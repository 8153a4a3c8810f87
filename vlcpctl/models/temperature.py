"""The temperature of the softmax as `--temperature` gives it. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError


@dataclass(frozen=True)
class Temperature:
    """The temperature that a new model starts with, and whether training moves it."""

    value: float
    learned: bool

    @property
    def log_scale(self) -> float:
        """What `logit_scale` holds: log(1 / temperature)."""
        return -math.log(self.value)


def parse_temperature(text: str) -> Temperature:
    """Read `--temperature`.

    >>> parse_temperature("fixed:0.07")
    Temperature(value=0.07, learned=False)
    """
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if kind not in {"fixed", "learn"} or not 0 < value < math.inf:
        raise UsageError(
            f"--temperature {text!r} is neither fixed:X nor learn:X with X > 0, such as fixed:0.07"
        )
    return Temperature(value, learned=kind == "learn")
