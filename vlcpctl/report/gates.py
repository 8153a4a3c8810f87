"""Conditions on a report's numbers, such as `--fail-if bwt_gem:lt:-5`, that stop a pipeline."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vlcpctl.core.errors import BadInput, GateFailed, UsageError, unknown_name
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.scores.summary import summarise, why_undefined

_OPERATORS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}


@dataclass(frozen=True)
class Gate:
    """One parsed condition; `summary` is None if a bare metric key such as rm was given."""

    text: str
    summary: str | None
    key: str | None
    comparison: str
    bound: float


@dataclass(frozen=True)
class Verdict:
    """The outcome of one condition on one run; `undefined` is why `value` is None."""

    condition: str
    run: str
    metric: str
    value: float | None
    holds: bool
    undefined: str | None

    def sentence(self) -> str:
        """The reason for an exit code, such as "ctp: bwt_gem.rm = -6.2500 < -5"."""
        _, comparison, bound = self.condition.rsplit(":", 2)
        sign = _OPERATORS[comparison][0]
        if self.value is None:
            return f"{self.run}: {self.metric} is undefined, {self.undefined}"
        return f"{self.run}: {self.metric} = {self.value:.4f} {sign} {bound}"

    def as_json(self) -> dict[str, Any]:
        """The verdict's fields."""
        return asdict(self)


def parse_gate(text: str, keys: Iterable[str]) -> Gate:
    """Parse METRIC:OP:VALUE, where METRIC is a summary metric, SUMMARY.KEY or a metric key.

    Raises UsageError for another form, an unknown metric or operator, or a value that is NaN.

    >>> parse_gate("bwt_gem.t2i_r1:lt:-5", ["t2i_r1"])
    Gate(text='bwt_gem.t2i_r1:lt:-5', summary='bwt_gem', key='t2i_r1', comparison='lt', bound=-5.0)
    """
    parts = text.split(":")
    if len(parts) != 3:
        raise UsageError(f"--fail-if takes METRIC:OP:VALUE such as bwt_gem:lt:-5, not {text!r}")
    metric, comparison, bound = parts
    if comparison not in _OPERATORS:
        raise UsageError(f"--fail-if {text}: {unknown_name('operator', comparison, _OPERATORS)}")
    summary, key = _split_metric(metric, list(keys), text)
    return Gate(text, summary, key, comparison, _number(bound, text))


def judge(
    gates: Iterable[Gate], tracks: Sequence[Track], key: Callable[[Track], str]
) -> list[Verdict]:
    """Apply every gate to every run that has its metric; `key` gives a track's main metric."""
    verdicts = []
    for gate in gates:
        found = [
            _verdict(gate, run, gate.key or key(track))
            for track in tracks
            if (gate.key or key(track)) in track.keys
            for run in track.runs
        ]
        verdicts += found or [_nothing_to_judge(gate)]
    return verdicts


def enforce(verdicts: Iterable[Verdict]) -> None:
    """Raise GateFailed (exit code 7) if a condition holds, BadInput (3) if one is undefined."""
    verdicts = list(verdicts)
    holding = [verdict.sentence() for verdict in verdicts if verdict.holds]
    if holding:
        raise GateFailed(f"--fail-if holds: {'; '.join(holding)}")
    undefined = [verdict.sentence() for verdict in verdicts if verdict.value is None]
    if undefined:
        raise BadInput(
            f"--fail-if cannot be evaluated: {'; '.join(undefined)}; use --run to select other runs"
        )


def _split_metric(metric: str, keys: list[str], text: str) -> tuple[str | None, str | None]:
    if metric in keys:
        return None, metric
    name, _, key = metric.partition(".")
    if name not in DEFINITIONS:
        raise UsageError(f"--fail-if {text}: {unknown_name('metric', name, [*DEFINITIONS, *keys])}")
    if key and key not in keys:
        raise UsageError(f"--fail-if {text}: {unknown_name('metric key', key, keys)}")
    return name, key or None


def _number(bound: str, text: str) -> float:
    try:
        number = float(bound)
    except ValueError:
        number = math.nan
    if math.isnan(number):  # a comparison with NaN would never stop anything
        raise UsageError(f"--fail-if {text}: {bound!r} is not a number")
    return number


def _nothing_to_judge(gate: Gate) -> Verdict:
    metric = ".".join(part for part in (gate.summary, gate.key) if part)
    why = "no run has rows on tasks of its stream"
    return Verdict(gate.text, "all runs", metric, None, holds=False, undefined=why)


def _verdict(gate: Gate, run: RunScores, key: str) -> Verdict:
    name = gate.summary or ("merged_final" if "merged" in run.galleries else "own_final")
    spread = summarise(run, key, name)
    metric = f"{name}.{key}"
    if spread is None:
        why = why_undefined(run, DEFINITIONS[name]) or "it lacks rows that the metric needs"
        return Verdict(gate.text, run.name, metric, None, holds=False, undefined=why)
    holds = _OPERATORS[gate.comparison][1](spread.mean, gate.bound)
    return Verdict(gate.text, run.name, metric, spread.mean, holds=holds, undefined=None)
