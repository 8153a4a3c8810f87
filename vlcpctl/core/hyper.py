"""Hyper-parameters of methods: default, description, source, and allowed values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any


def hyper(
    default: Any, *, doc: str, origin: str, choices: Sequence[str] = (), within: str = "[0, inf)"
) -> Any:
    """A dataclass field for a hyper-parameter.

    `doc` describes it, and `origin` is the equation or table of the paper that gives the default,
    or "ours" if no paper does. A number must be `within` an interval such as "(0, 1]", a text one
    of `choices`, if there are any.
    """
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    about = {"help": doc, "origin": origin, "choices": tuple(choices)}
    return field(default=default, metadata={**about, "within": within if is_number else ""})


def lies_within(value: float, interval: str) -> bool:
    """Whether a number is in an interval such as "[0, inf)"; infinity and NaN never are.

    >>> lies_within(0.0, "[0, 1]"), lies_within(0.0, "(0, inf)"), lies_within(math.inf, "(0, inf)")
    (True, False, False)
    """
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below and math.isfinite(value)
