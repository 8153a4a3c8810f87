"""The verdict of each condition on what it is applied to, and the error that they end with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from vlcpctl.core.errors import MOST_NAMES, BadInput, GateFailed
from vlcpctl.core.structs import converted
from vlcpctl.report.facts.table import Fact, Facts, Measured, Unmatched
from vlcpctl.report.gates.grammar import OPERATORS, Gate

POLICIES = ("error", "pass")  # of --undefined
ALL_RUNS = "all runs"

_EARLY = "not defined yet (1 task)"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one condition on one run, gallery or data set.

    `undefined` is why `value` is None, and `advice` what to do about it; `passes` is whether a
    pipeline continues. `track` is the title of the track; None if the condition applies to nothing.
    """

    condition: str
    run: str
    metric: str
    value: float | None
    holds: bool
    undefined: str | None
    data: str | None = None
    track: str | None = None
    bound: float = math.nan
    advice: str | None = None
    is_early: bool = False
    passes: bool = False

    @classmethod
    def read(cls, written: Mapping[str, Any], place: object) -> Self:
        """The verdict that `as_json` has written. Raises BadInput as `converted` does."""
        bound = written.get("bound")
        return converted({**written, "bound": math.nan if bound is None else bound}, cls, place)

    @property
    def outcome(self) -> str:
        """In a few words: "passes", "fails", "not defined yet (1 task)" or "undefined: ..."."""
        if self.value is not None:
            return "fails" if self.holds else "passes"
        return _EARLY if self.is_early else f"undefined: {self.undefined}"

    @property
    def comparison(self) -> str:
        """The comparison as it is read, such as "> 3"."""
        _, comparison, bound = self.condition.rsplit(":", 2)
        return f"{OPERATORS[comparison][0]} {bound}"

    def sentence(self, *, names_track: bool = False) -> str:
        """What was found, such as "ctp: drop.rm on coco = 6.2500 > 5", for any outcome."""
        data = f" on {self.data}" if self.data is not None else ""
        track = f" ({self.track})" if names_track and self.track else ""
        subject = f"{self.run}: {self.metric}{data}{track}"
        if self.value is None:
            if self.is_early:
                return f"{subject} is {_EARLY}, because forgetting needs two"
            return f"{subject} is undefined, {self.undefined}"
        sign = "" if self.holds else ", not"
        return f"{subject} = {self.value:.4f}{sign} {self.comparison}"

    def as_json(self) -> dict[str, Any]:
        """The verdict's fields and outcome; a bound that is not recorded is null."""
        bound = self.bound if math.isfinite(self.bound) else None
        return asdict(self) | {"bound": bound, "outcome": self.outcome}


def judge(gates: Iterable[Gate], facts: Facts, undefined: str = "error") -> list[Verdict]:
    """Apply every condition to the facts that it selects.

    With `undefined` "pass", what needs a second task passes while a run has learned one.
    """
    verdicts = []
    for gate in gates:
        found = facts.of_runs(gate.metric, gate.selectors)
        if isinstance(found, Unmatched):
            verdicts.append(_of_nothing(gate, found))
        elif gate.metric.name == "worst_drop":
            verdicts += _worst(gate, found)
        else:
            verdicts += [_verdict(gate, one, one.measure(), undefined) for one in found]
    return verdicts


def overall(verdicts: Sequence[Verdict]) -> str:
    """Such as "passes: 3 of 3 verdicts" or "fails: 1 of 3 verdicts, and 1 undefined"."""
    count = len(verdicts)
    failing = sum(one.holds for one in verdicts)
    undefined = sum(not one.passes for one in verdicts) - failing
    if failing:
        rest = f", and {undefined} undefined" if undefined else ""
        return f"fails: {failing} of {count} verdicts{rest}"
    if undefined:
        return f"undefined: {undefined} of {count} verdicts"
    return f"passes: {count} of {count} verdicts"


def names_tracks(verdicts: Iterable[Verdict]) -> bool:
    """Whether the verdicts are of several tracks, so that each has to name its own."""
    return len({one.track for one in verdicts if one.track is not None}) > 1


def advice(verdicts: Iterable[Verdict]) -> list[str]:
    """What to do about undefined verdicts that do not pass, without duplicates."""
    found = dict.fromkeys(one.advice for one in verdicts if one.advice and not one.passes)
    return _cut([text for text in found if text])


def enforce(verdicts: Iterable[Verdict]) -> None:
    """Raise GateFailed (exit code 7) if a condition holds, BadInput (3) if one is undefined.

    Verdicts that `--undefined pass` accepts raise neither.
    """
    verdicts = list(verdicts)
    tracks = names_tracks(verdicts)
    holding = [one.sentence(names_track=tracks) for one in verdicts if one.holds]
    if holding:
        raise GateFailed(f"--fail-if holds: {'; '.join(_cut(holding))}")
    undefined = [one for one in verdicts if not one.passes]
    if undefined:
        said = _cut([one.sentence(names_track=tracks) for one in undefined])
        raise BadInput(f"--fail-if cannot be evaluated: {'; '.join([*said, *advice(undefined)])}")


def _cut(sentences: list[str]) -> list[str]:
    more = len(sentences) - MOST_NAMES
    return sentences if more <= 0 else [*sentences[:MOST_NAMES], f"and {more} more"]


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


def _verdict(gate: Gate, fact: Fact, found: Measured, undefined: str) -> Verdict:
    value = found.number
    holds = value is not None and gate.is_met_by(value)
    is_excused = found.is_early and undefined == "pass"
    return Verdict(
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
        passes=is_excused or (value is not None and not holds),
    )


def _worst(gate: Gate, facts: Sequence[Fact]) -> list[Verdict]:
    """One verdict per run, on the data with the largest drop.

    It is undefined if data that were not measured could turn it: those may be the worst.
    """
    by_run: dict[str, list[tuple[Fact, Measured]]] = {}
    for fact in facts:
        by_run.setdefault(fact.run, []).append((fact, fact.measure()))
    verdicts = []
    for found in by_run.values():
        known = [(value, pair) for pair in found if (value := pair[1].number) is not None]
        unknown = [pair for pair in found if pair[1].number is None]
        value, worst = max(known, key=lambda pair: pair[0], default=(math.nan, None))
        # A larger drop that is not known would not change the verdict.
        is_certain = gate.is_met_by(value) == (gate.comparison in {"gt", "ge"})
        chosen = worst if worst and (not unknown or is_certain) else unknown[0]
        verdicts.append(_verdict(gate, *chosen, "error"))
    return verdicts
