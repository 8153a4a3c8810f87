"""The grammar of --fail-if: METRIC[@FIELD=GLOB,...]:OP:VALUE."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from vlcpctl.core.amounts import parse_number
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.metrics.definitions import DEFINITIONS

OPERATORS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}
FIELDS = ("evaluator", "run", "gallery", "data")  # in the order in which they narrow the choice
DROPS = ("drop", "worst_drop", "drop_low", "drop_high")

_DECIMALS = 9  # a difference of two scores, such as 79.8 - 76.8, is exact to about 13
# A set of characters as `fnmatch` reads it, or any one character.
_GLOB_PART = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


@dataclass(frozen=True)
class Gate:
    """One parsed condition.

    `summary` is a name of DEFINITIONS or DROPS, or None if a bare metric key such as rm was given;
    `selectors` has (field, glob) pairs.
    """

    text: str
    summary: str | None
    key: str | None
    comparison: str
    bound: float
    selectors: tuple[tuple[str, str], ...] = ()

    @property
    def is_drop(self) -> bool:
        """Whether it is about a change against the baseline."""
        return self.summary in DROPS

    @property
    def is_about_data(self) -> bool:
        """Whether it is about single data sets rather than a mean over the tasks of a run."""
        return self.is_drop or self.glob("data") is not None

    @property
    def metric(self) -> str:
        """The metric as it was given, without selectors: such as "bwt_gem.t2i_r1" or "rm"."""
        return ".".join(part for part in (self.summary, self.key) if part)

    def glob(self, field: str) -> str | None:
        """The pattern given for a field; None without one."""
        return dict(self.selectors).get(field)

    def selects(self, field: str, name: str) -> bool:
        """Whether the name matches the pattern given for this field, if there is one."""
        glob = self.glob(field)
        return glob is None or fnmatchcase(name, glob)

    def is_met_by(self, value: float) -> bool:
        """Whether the comparison is true; what is left of rounding does not decide it."""
        return OPERATORS[self.comparison][1](round(value, _DECIMALS), self.bound)


def parse_gate(text: str, keys: Iterable[str]) -> Gate:
    """Parse METRIC[@FIELD=GLOB,...]:OP:VALUE.

    METRIC is a summary metric or one of DROPS, either with .KEY behind it or without, or a metric
    key. Names may contain any character: OP and VALUE are the last two parts, the selectors start
    at the first @ behind the metric, and a comma or bracket in a pattern is written [,] or [[].
    Raises UsageError for another form, an unknown metric, field or operator, or a value that is
    NaN.

    >>> gate = parse_gate("drop.acc1@data=a:b*,run=x:gt:3", ["rm", "acc1"])
    >>> gate.summary, gate.key, gate.comparison, gate.bound, gate.selectors
    ('drop', 'acc1', 'gt', 3.0, (('data', 'a:b*'), ('run', 'x')))
    """
    parts = text.rsplit(":", 2)
    if len(parts) != 3:
        raise UsageError(
            "--fail-if takes METRIC:OP:VALUE such as bwt_gem:lt:-5 or drop@data=coco*:gt:3, "
            f"not {text!r}"
        )
    chosen, comparison, bound = parts
    if comparison not in OPERATORS:
        raise UsageError(f"--fail-if {text}: {unknown_name('operator', comparison, OPERATORS)}")
    found = _parsed(chosen, list(keys), f"--fail-if {text}")
    return replace(found, text=text, comparison=comparison, bound=_number(bound, text))


def parse_metric(text: str, keys: Iterable[str], option: str) -> Gate:
    """Parse METRIC[@FIELD=GLOB,...], without a condition: its bound is NaN, which nothing meets.

    Raises UsageError, which names the option, as `parse_gate` does.

    >>> parse_metric("bwt_gem.acc1@run=x", ["rm", "acc1"], "--best").metric
    'bwt_gem.acc1'
    """
    return _parsed(text, list(keys), f"{option} {text}")


def _parsed(text: str, keys: list[str], where: str) -> Gate:
    metric, selectors = _split_selectors(text, keys)
    summary, key = _split_metric(metric, keys, where)
    gate = Gate(text, summary, key, "ge", math.nan, _selectors(selectors, where))
    if summary in DEFINITIONS and gate.glob("data") is not None:
        raise UsageError(
            f"{where}: {summary} is computed over all tasks of a run and takes no data=; "
            f"use {key or 'a metric key'}@data=... or drop@data=... for single data sets"
        )
    return gate


def _split_selectors(chosen: str, keys: list[str]) -> tuple[str, str | None]:
    """The metric, and what is behind its @; the longest known metric if it may contain one."""
    cuts = [place for place, char in enumerate(chosen) if char == "@"]
    for cut in [len(chosen), *reversed(cuts)]:
        if _is_known(chosen[:cut], keys):
            return chosen[:cut], chosen[cut + 1 :] if cut < len(chosen) else None
    metric, at, selectors = chosen.partition("@")
    return metric, selectors if at else None


def _is_known(metric: str, keys: list[str]) -> bool:
    name, dot, key = metric.partition(".")
    return metric in keys or ((name in DEFINITIONS or name in DROPS) and (not dot or key in keys))


def _split_metric(metric: str, keys: list[str], where: str) -> tuple[str | None, str | None]:
    if metric in keys:
        return None, metric
    name, dot, key = metric.partition(".")
    if dot and name in keys:
        raise UsageError(
            f"{where}: {name} is a metric key, to which no .{key} can be added; use "
            f"{name}, or a summary of it such as own_final.{name}"
        )
    if name not in DEFINITIONS and name not in DROPS:
        known = [*DEFINITIONS, *DROPS, *keys]
        raise UsageError(f"{where}: {unknown_name('metric', name, known)}")
    if dot and key not in keys:
        raise UsageError(f"{where}: {unknown_name('metric key', key, keys)}")
    return name, key or None


def _selectors(text: str | None, where: str) -> tuple[tuple[str, str], ...]:
    """(field, glob) pairs of FIELD=GLOB,...; a comma inside brackets is part of a glob."""
    if text is None:
        return ()
    found: dict[str, str] = {}
    for part in split_at_commas(text):
        field, equals, glob = part.partition("=")
        if not equals:
            raise UsageError(f"{where}: {part!r} is not FIELD=GLOB; write a comma in a name as [,]")
        if field not in FIELDS:
            raise UsageError(f"{where}: {unknown_name('field', field, FIELDS)}")
        if field in found:
            raise UsageError(f"{where}: {field}= is given twice; use two conditions")
        if not glob:
            raise UsageError(f"{where}: {field}= has no pattern; * matches every name")
        found[field] = glob
    return tuple(found.items())


def split_at_commas(text: str) -> list[str]:
    """The parts of a text between commas; a comma inside brackets is part of a glob.

    >>> split_at_commas("data=a[,]b,run=x")
    ['data=a[,]b', 'run=x']
    """
    parts = [""]
    for found in _GLOB_PART.findall(text):
        if found == ",":
            parts.append("")
        else:
            parts[-1] += found
    return parts


def _number(bound: str, text: str) -> float:
    try:  # a comparison with NaN or infinity would never stop anything, or always
        return parse_number(bound)
    except ValueError as error:
        raise UsageError(f"--fail-if {text}: {error}") from error
