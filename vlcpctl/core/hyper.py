"""Hyper-parameters of methods: a default, what it does, where it comes from, what it may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any


def hyper(
    default: Any, *, doc: str, origin: str, choices: Sequence[str] = (), within: str = "[0, inf)"
) -> Any:
    """A hyper-parameter: its default, what it does, and the equation or table it comes from.

    `origin="ours"` marks a value that no paper gives. A number lies `within` an interval.
    """
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    about = {"help": doc, "origin": origin, "choices": tuple(choices)}
    return field(default=default, metadata={**about, "within": within if is_number else ""})


def lies_within(value: float, interval: str) -> bool:
    """Whether a number lies in an interval; infinity and NaN lie in none.

    >>> lies_within(0.0, "[0, 1]"), lies_within(0.0, "(0, inf)"), lies_within(math.inf, "(0, inf)")
    (True, False, False)
    """
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below and math.isfinite(value)
