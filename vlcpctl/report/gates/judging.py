"""Judging: each condition applied to the facts that it selects, and losses against chance.

A loss whose interval is known stops a pipeline if it is above the bound and above what chance shows
(metrics/chance.py). Where several losses are judged together, they share the false alarms: those of
guards, those of earlier tasks, and `bwt_gem` of each run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from vlcpctl.metrics.chance import PER_REPORT, critical_value, margin_of, smallest_seen
from vlcpctl.report.facts.language import WORST
from vlcpctl.report.facts.table import Fact, Facts, Measured, Unmatched
from vlcpctl.report.gates.grammar import Gate
from vlcpctl.report.gates.verdicts import Verdict

POLICIES: Final = ("error", "pass")  # of --undefined
UNRESOLVED: Final = ("accept", "reject")  # of --unresolved
ALL_RUNS = "all runs"

_GUARDS, _TASKS, _MEANS, _INDEXES = "guards", "tasks", "means", "indexes"
# Families of losses that are judged together, by metric. Conditions on other values are plain.
_FAMILIES = {
    "drop": _GUARDS,
    "worst_drop": _GUARDS,
    "step_drop": _GUARDS,
    "worst_week": _TASKS,
    "bwt_gem": _MEANS,
    "index_loss": _INDEXES,
}
_GAINS = frozenset({"bwt_gem"})  # losses are negative


@dataclass(frozen=True)
class Rule:
    """How conditions are judged.

    `undefined`: "pass" accepts what needs a second task while a run has learned one. Of all losses
    of a family in a report, `false_alarms` are taken for real by chance, on average. `unresolved`:
    "reject" also stops for a loss that may be above its bound, at 1.96 standard errors more.
    """

    undefined: str = "error"
    false_alarms: float = PER_REPORT
    unresolved: str = "accept"


USUAL: Final = Rule()
_Found = list[tuple[Fact, Measured]]


def judge(gates: Iterable[Gate], facts: Facts, rule: Rule = USUAL) -> list[Verdict]:
    """Apply every condition to the facts that it selects."""
    selected: list[tuple[Gate, _Found | Unmatched]] = []
    members: dict[str, set[Hashable]] = {}
    for gate in gates:
        found = facts.of_runs(gate.metric, gate.selectors)
        if isinstance(found, Unmatched):
            selected.append((gate, found))
            continue
        selected.append((gate, [(one, one.measure()) for one in found]))
        if (family := _family(gate)) is not None:
            key = gate.metric.key
            members.setdefault(family, set()).update(
                (one.title, one.run, one.name("data"), one.against, key) for one in found
            )
    counts = {family: len(found) for family, found in members.items()}
    verdicts = []
    for gate, chosen in selected:
        if isinstance(chosen, Unmatched):
            verdicts.append(_of_nothing(gate, chosen))
            continue
        each = [_verdict(gate, *one, rule, counts) for one in chosen]
        verdicts += _worst(gate, each) if gate.metric.name in WORST else each
    return verdicts


def _family(gate: Gate) -> str | None:
    """The losses that a condition's are judged with; None if it is about a plain value."""
    name = gate.metric.name or ""
    losing = {"lt", "le"} if name in _GAINS else {"gt", "ge"}
    return _FAMILIES.get(name) if gate.comparison in losing else None


def _of_nothing(gate: Gate, why: Unmatched) -> Verdict:
    return Verdict(
        condition=gate.text,
        run=ALL_RUNS,
        metric=gate.metric.text,
        value=None,
        holds=False,
        undefined=why.undefined,
        bound=gate.bound,
        advice=why.advice,
    )


def _verdict(
    gate: Gate, fact: Fact, found: Measured, rule: Rule, counts: dict[str, int]
) -> Verdict:
    value = found.number
    holds = value is not None and gate.is_met_by(value)
    verdict = Verdict(
        condition=gate.text,
        run=fact.run,
        metric=fact.metric,
        value=value,
        holds=holds,
        undefined=found.undefined,
        data=fact.name("data") or None,
        track=fact.title,
        bound=gate.bound,
        advice=found.advice,
        is_early=found.is_early,
        against=None if fact.against == "baseline" else fact.against,
    )
    family = _family(gate)
    if value is not None and found.interval is not None and family is not None:
        verdict = replace(verdict, against=fact.against)
        verdict = _against_chance(verdict, gate, found, rule, counts[family])
    is_excused = found.is_early and rule.undefined == "pass"
    return replace(verdict, passes=is_excused or (value is not None and not verdict.holds))


def _against_chance(
    verdict: Verdict, gate: Gate, found: Measured, rule: Rule, comparisons: int
) -> Verdict:
    """The verdict on a loss whose interval is known."""
    interval, value = found.interval, found.number
    assert interval is not None, "the caller has looked"
    assert value is not None, "the caller has looked"
    is_gain = gate.metric.name in _GAINS
    loss, bound = (-value, -gate.bound) if is_gain else (value, gate.bound)
    margin = margin_of(interval.error)
    z = critical_value(comparisons, rule.false_alarms)
    chance = z * interval.error
    is_resolved = loss + margin <= bound
    holds = gate.is_met_by(value) and loss > chance
    ends = (interval.low, interval.high)
    return replace(
        verdict,
        holds=holds or (rule.unresolved == "reject" and not is_resolved),
        samples=interval.samples,
        se=interval.error,
        low=-ends[1] if is_gain else ends[0],
        high=-ends[0] if is_gain else ends[1],
        comparisons=comparisons,
        chance=chance,
        sees=smallest_seen(bound, interval.error, z),
        is_resolved=is_resolved,
        is_clear=loss - margin > bound,
    )


def _worst(gate: Gate, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """One verdict per run: on the largest loss that stops it, is not resolved, or else of all.

    It is undefined if data that were not measured could turn it: those may be the worst.
    """
    by_run: dict[str, list[Verdict]] = {}
    for one in verdicts:
        by_run.setdefault(one.run, []).append(one)
    return [_worst_of(gate, found) for found in by_run.values()]


def _worst_of(gate: Gate, verdicts: Sequence[Verdict]) -> Verdict:
    known = [one for one in verdicts if one.value is not None]
    unknown = [one for one in verdicts if one.value is None]
    rejects_losses = gate.comparison in {"gt", "ge"}
    worst = max(
        known,
        key=lambda one: (rejects_losses and one.holds, one.is_resolved is False, one.value),
        default=None,
    )
    # A larger drop that is not known would not change the verdict.
    is_certain = worst is not None and worst.holds == rejects_losses
    return worst if worst is not None and (not unknown or is_certain) else unknown[0]
