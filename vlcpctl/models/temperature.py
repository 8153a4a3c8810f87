"""The softmax temperature given with `--temperature`. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import parse_number

# Similarities are from -1 to 1: far beyond these, a softmax of them is uniform or one-hot.
_LEAST, _MOST = 0.0001, 10_000


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
    kind, _, spelled = text.partition(":")
    try:
        value = parse_number(spelled)
    except ValueError:
        value = math.nan
    if kind not in {"fixed", "learn"} or not _LEAST <= value <= _MOST:
        raise UsageError(
            f"--temperature {text!r} is not fixed:X or learn:X with X from {_LEAST} to {_MOST}, "
            "such as fixed:0.07"
        )
    return Temperature(value, learned=kind == "learn")
