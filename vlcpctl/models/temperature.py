"""The softmax temperature given with `--temperature`. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError


@dataclass(frozen=True)
class Temperature:
    """The initial temperature of a new model, and whether it is learned."""

    value: float
    learned: bool

    @property
    def log_scale(self) -> float:
        """The value of the parameter `logit_scale`: log(1 / temperature)."""
        return -math.log(self.value)


def parse_temperature(text: str) -> Temperature:
    """Parse `--temperature`, fixed:X or learn:X. Raises UsageError for anything else.

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
            f"--temperature {text!r} is not fixed:X or learn:X with X > 0, such as fixed:0.07"
        )
    return Temperature(value, learned=kind == "learn")
