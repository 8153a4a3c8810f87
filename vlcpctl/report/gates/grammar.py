"""The conditions of --fail-if: METRIC[@FIELD=GLOB,...]:OP:VALUE."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.words import parse_number
from vlcpctl.report.facts.language import Metric, Pairs, parse

OPERATORS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}

_DECIMALS = 9  # a difference of two scores, such as 79.8 - 76.8, is exact to about 13


@dataclass(frozen=True)
class Gate:
    """One parsed condition: the facts that it is about, and when it holds."""

    text: str
    metric: Metric
    selectors: Pairs
    comparison: str
    bound: float

    def is_met_by(self, value: float) -> bool:
        """Whether the comparison is true, as `is_beyond` says."""
        return is_beyond(value, self.comparison, self.bound)


def is_beyond(value: float, comparison: str, bound: float) -> bool:
    """Whether the comparison is true; what is left of rounding does not decide it."""
    return OPERATORS[comparison][1](round(value, _DECIMALS), bound)


def parse_gate(text: str, keys: Iterable[str]) -> Gate:
    """Parse METRIC[@FIELD=GLOB,...]:OP:VALUE; `keys` are the metric keys of the rows.

    Names may contain any character: OP and VALUE are the last two parts. Raises UsageError for
    another form, an unknown operator, what `parse` refuses, or a value that is not finite.

    >>> gate = parse_gate("drop.acc1@data=a:b*,run=x:gt:3", ["rm", "acc1"])
    >>> gate.metric.text, gate.selectors, gate.comparison, gate.bound
    ('drop.acc1', (('data', 'a:b*'), ('run', 'x')), 'gt', 3.0)
    """
    parts = text.rsplit(":", 2)
    if len(parts) != 3:
        raise UsageError(
            "--fail-if takes METRIC:OP:VALUE such as bwt_gem:lt:-5 or drop@data=coco*:gt:3, "
            f"not {text!r}"
        )
    chosen, comparison, bound = parts
    where = f"--fail-if {text}"
    if comparison not in OPERATORS:
        raise UsageError(f"{where}: {unknown_name('operator', comparison, OPERATORS)}")
    metric, selectors = parse(chosen, where, list(keys))
    try:  # a comparison with NaN or infinity would never stop anything, or always
        return Gate(text, metric, selectors, comparison, parse_number(bound))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
