"""Conditions on a report's facts, METRIC[@FIELD=GLOB,...]:OP:VALUE, and their verdicts.

A loss whose interval is known stops a pipeline if it is above the bound and above what chance shows
(metrics/chance.py). Where several losses are judged together, they share the false alarms: those of
guards, those of earlier tasks, and `bwt_gem` of each run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from vlcpctl.core.errors import MOST_NAMES, BadInput, GateFailed, UsageError, unknown_name
from vlcpctl.core.words import parse_number
from vlcpctl.files.inputs import converted
from vlcpctl.metrics.chance import critical_value, margin_of, smallest_seen
from vlcpctl.report.facts import SMALL, WORST, Fact, Facts, Metric, Pairs, parse
from vlcpctl.report.scores import Against
from vlcpctl.report.table import Column, RowGroup, Table, TableCell

OPERATORS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}
ALL_RUNS = "all runs"
GAINS = frozenset({"bwt_gem"})  # metrics whose losses are negative
LOSSES = frozenset({"drop", "worst_drop", "step_drop", "worst_week"}) | GAINS
# Families of losses that are judged together, by metric. Conditions on other values are plain.
_FAMILIES = {
    **dict.fromkeys(("drop", "worst_drop", "step_drop"), "guards"),
    "worst_week": "tasks",
    "bwt_gem": "means",
    "index_loss": "indexes",
}
_DECIMALS = 9  # a difference of two scores, such as 79.8 - 76.8, is exact to about 13
_OF_CHANCE = frozenset(
    {"against", "samples", "se", "low", "high", "comparisons", "chance", "sees"}
    | {"is_resolved", "is_clear"}
)
_LATER = "--undefined pass lets them pass until a second task is learned"
_EARLY = "not defined yet (1 task)"
_TOO_SMALL = "not judged (fewer than 50 test images)"
_SINCE: dict[Against, str] = {
    "step before": " since the step before",
    "learned": " since it was learned",
}
_CHANCE = (
    "chance: a loss that chance alone hardly shows; a condition fails if the loss is above this "
    "and above its bound"
)


@dataclass(frozen=True)
class Gate:
    """One parsed condition: the facts that it is about, and when it holds."""

    text: str
    metric: Metric
    selectors: Pairs
    comparison: str
    bound: float

    @property
    def family(self) -> str | None:
        """The losses that a condition's are judged with; None if it is about a plain value."""
        losing = {"lt", "le"} if self.metric.name in GAINS else {"gt", "ge"}
        return _FAMILIES.get(self.metric.name) if self.comparison in losing else None


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
    if metric.kind == "config":
        raise UsageError(f"{where}: a setting is not a score")
    try:  # a comparison with NaN or infinity would never stop anything, or always
        return Gate(text, metric, selectors, comparison, parse_number(bound))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one condition on one run, gallery or data set.

    `undefined` is why `value` is None; `passes` is whether a
    pipeline continues. `track` is the title of the track; None if the condition applies to nothing.

    The other fields are None unless the value is a loss that was judged against chance, which takes
    ranks. It is from `against` to now, over `samples`, has the standard error `se` and the 95 %
    interval from `low` to `high`, and is one of `comparisons` that are judged together: models that
    lost nothing exceed `chance` as rarely as was wanted, and a true loss of `sees` is found in 80
    of 100 cases. It `is_resolved` if all of it is within the bound even at 1.96 standard errors
    more, and `is_clear` if it is above even at so many less. All in points.
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
    is_early: bool = False
    passes: bool = False
    against: Against | None = None
    samples: int | None = None
    se: float | None = None
    low: float | None = None
    high: float | None = None
    comparisons: int | None = None
    chance: float | None = None
    sees: float | None = None
    is_resolved: bool | None = None
    is_clear: bool | None = None

    @classmethod
    def read(cls, written: Mapping[str, Any], place: object) -> Self:
        """The verdict that `as_json` has written. Raises BadInput as `converted` does."""
        bound = written.get("bound")
        return converted({**written, "bound": math.nan if bound is None else bound}, cls, place)

    @property
    def outcome(self) -> str:
        """In a few words: "passes", "fails", "not defined yet (1 task)" or "undefined: ...".

        "passes, not resolved" if the loss may be above the bound.
        """
        if self.value is not None:
            passes = "passes, not resolved" if self.is_resolved is False else "passes"
            return "fails" if self.holds else passes
        return self._early if self.is_early else f"undefined: {self.undefined}"

    @property
    def _early(self) -> str:
        return _TOO_SMALL if self.undefined == SMALL else _EARLY

    @property
    def name(self) -> str:
        """The metric without its key, such as "drop" of "drop.rm"."""
        return self.metric.partition(".")[0]

    @property
    def comparison(self) -> str:
        """The comparison as it is read, such as "> 3"."""
        _, comparison, bound = self.condition.rsplit(":", 2)
        return f"{OPERATORS[comparison][0]} {bound}"

    @property
    def exceeds(self) -> bool:
        """Whether the value is beyond the bound, which for a loss may be chance."""
        _, comparison, _ = self.condition.rsplit(":", 2)
        return self.value is not None and is_beyond(self.value, comparison, self.bound)

    def sentence(self, *, names_track: bool = False) -> str:
        """What was found, such as "ctp: drop.rm on coco = 6.2500 > 5", for any outcome.

        A loss that was judged against chance has its interval, and what chance reaches.
        """
        data = f" on {self.data}" if self.data is not None else ""
        track = f" ({self.track})" if names_track and self.track else ""
        since = _SINCE.get(self.against, "") if self.against is not None else ""
        subject = f"{self.run}: {self.metric}{data}{since}{track}"
        if self.value is None and self.is_early:
            why = self.undefined if self.undefined == SMALL else "because forgetting needs two"
            return f"{subject} is {self._early}, {why}"
        if self.value is None:
            return f"{subject} is undefined, {self.undefined}"
        interval = "" if self.low is None else f" (95 % {self.low:.2f} to {self.high:.2f})"
        sign = "" if self.exceeds else ", not"
        chance = ""
        if self.chance is not None and self.exceeds:
            chance = f", {'and' if self.holds else 'but'} chance alone reaches {self.chance:.2f}"
        elif self.chance is not None and not self.is_resolved:
            chance = ", not resolved"
        return f"{subject} = {self.value:.4f}{interval}{sign} {self.comparison}{chance}"

    def as_json(self) -> dict[str, Any]:
        """The verdict's fields and outcome; a bound that is not recorded is null.

        Those of a loss that was judged against chance are left out of other verdicts.
        """
        found = {k: v for k, v in asdict(self).items() if v is not None or k not in _OF_CHANCE}
        bound = self.bound if math.isfinite(self.bound) else None
        return found | {"bound": bound, "outcome": self.outcome}


def judge(
    gates: Iterable[Gate], facts: Facts, false_alarms: float, *, early_passes: bool = False
) -> list[Verdict]:
    """Apply every condition to the facts that it selects.

    Of all losses of a family in a report, `false_alarms` are taken for real by chance, on average.
    `early_passes` accepts what needs a second task while a run has learned one.
    """
    selected = [(gate, facts.of_runs(gate.metric, gate.selectors)) for gate in gates]
    members: dict[str, set[Hashable]] = {}
    for gate, found in selected:
        if gate.family is not None and not isinstance(found, str):
            members.setdefault(gate.family, set()).update(
                (one.title, one.run, one.data, one.against, gate.metric.key) for one in found
            )
    verdicts = []
    for gate, some in selected:
        nothing: dict[str, Any] = {"metric": gate.metric.text, "value": None, "run": ALL_RUNS}
        found = [Fact(**nothing, undefined=some)] if isinstance(some, str) else some
        count = len(members.get(gate.family or "", ()))
        z = critical_value(count, false_alarms)
        each = [_verdict(gate, one, z, count, early_passes=early_passes) for one in found]
        verdicts += _worst(gate, each) if gate.metric.name in WORST else each
    return verdicts


def _verdict(gate: Gate, fact: Fact, z: float, comparisons: int, *, early_passes: bool) -> Verdict:
    value = fact.number
    is_loss = value is not None and fact.interval is not None and gate.family is not None
    verdict = Verdict(
        condition=gate.text,
        run=fact.run,
        metric=fact.metric,
        value=value,
        holds=value is not None and is_beyond(value, gate.comparison, gate.bound),
        undefined=fact.undefined,
        data=fact.data or None,
        track=fact.title,
        bound=gate.bound,
        is_early=fact.is_early,
        against=None if fact.against == "baseline" and not is_loss else fact.against,
    )
    if value is not None and fact.interval is not None and gate.family is not None:
        sign = -1 if gate.metric.name in GAINS else 1
        loss, bound, ends = sign * value, sign * gate.bound, fact.interval
        margin, chance = margin_of(ends.error), z * ends.error
        verdict = replace(
            verdict,
            holds=verdict.holds and loss > chance,
            samples=ends.samples,
            se=ends.error,
            low=-ends.high if sign < 0 else ends.low,
            high=-ends.low if sign < 0 else ends.high,
            comparisons=comparisons,
            chance=chance,
            sees=smallest_seen(bound, ends.error, z),
            is_resolved=loss + margin <= bound,
            is_clear=loss - margin > bound,
        )
    is_excused = fact.is_early and early_passes
    return replace(verdict, passes=is_excused or (value is not None and not verdict.holds))


def _worst(gate: Gate, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """One verdict per run: on the largest loss that stops it, is not resolved, or else of all.

    It is undefined if data that were not measured could turn it: those may be the worst.
    """
    by_run: dict[str, list[Verdict]] = {}
    for one in verdicts:
        by_run.setdefault(one.run, []).append(one)
    rejects_losses = gate.comparison in {"gt", "ge"}
    found = []
    for members in by_run.values():
        known = [one for one in members if one.value is not None]
        unknown = [one for one in members if one.value is None]
        worst = max(
            known,
            key=lambda one: (rejects_losses and one.holds, one.is_resolved is False, one.value),
            default=None,
        )
        # A larger drop that is not known would not change the verdict.
        is_certain = worst is not None and worst.holds == rejects_losses
        found.append(worst if worst is not None and (not unknown or is_certain) else unknown[0])
    return found


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


def in_words(verdicts: Iterable[Verdict], *, accepted: bool) -> str:
    """The verdict on a week: rejected, accepted, or "accepted, not resolved".

    Not resolved: no loss rejects the week, but one may be above its bound.
    """
    if not accepted:
        return "rejected"
    losses = (one for one in verdicts if one.name in LOSSES and one.value is not None)
    is_open = any(one.is_resolved is False for one in losses)
    return "accepted, not resolved" if is_open else "accepted"


def names_tracks(verdicts: Iterable[Verdict]) -> bool:
    """Whether the verdicts are of several tracks, so that each has to name its own."""
    return len({one.track for one in verdicts if one.track is not None}) > 1


def enforce(verdicts: Sequence[Verdict]) -> None:
    """Raise GateFailed (exit code 7) if a condition holds, BadInput (3) if one is undefined.

    Verdicts that `--undefined pass` accepts raise neither.
    """
    tracks = names_tracks(verdicts)
    holding = [one.sentence(names_track=tracks) for one in verdicts if one.holds]
    if holding:
        raise GateFailed(f"--fail-if holds: {'; '.join(_cut(holding))}")
    undefined = [one.sentence(names_track=tracks) for one in verdicts if not one.passes]
    if undefined:
        is_early = any(one.is_early and not one.passes for one in verdicts)
        said = [*_cut(undefined), *([_LATER] if is_early else [])]
        raise BadInput(f"--fail-if cannot be evaluated: {'; '.join(said)}")


def _cut(sentences: list[str]) -> list[str]:
    more = len(sentences) - MOST_NAMES
    return sentences if more <= 0 else [*sentences[:MOST_NAMES], f"and {more} more"]


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """A table of the --fail-if conditions: what each applies to, its value, bound and verdict.

    The columns of data, tracks and chance are left out if no verdict needs them.
    """
    by_chance = any(one.chance is not None for one in verdicts)
    several = names_tracks(verdicts)
    blank = "-" if by_chance else ""
    texts: dict[str, Callable[[Verdict], str]] = {
        "condition": lambda one: one.condition,
        "run": lambda one: one.run,
        "data": lambda one: one.data or "",
        "track": lambda one: one.track or "" if several else "",
        "metric": lambda one: one.metric,
        "value": lambda one: "-" if one.value is None else f"{one.value:.4f}",
        "95 % interval": lambda one: (
            blank if one.low is None else f"{one.low:.2f} to {one.high:.2f}"
        ),
        "bound": lambda one: one.comparison,
        "chance": lambda one: blank if one.chance is None else f"{one.chance:.2f}",
    }
    shown = {name: text for name, text in texts.items() if any(map(text, verdicts))}
    numbers = {"value", "95 % interval", "bound", "chance"}
    columns = (*(Column(name, name in numbers) for name in shown), Column("verdict", False))
    rows = []
    for one in verdicts:
        outcome = TableCell(one.outcome, is_strong=not one.passes)
        rows.append((*(TableCell(text(one)) for text in shown.values()), outcome))
    notes = (_CHANCE,) if by_chance else ()
    return Table("Conditions (--fail-if)", columns, (RowGroup("", tuple(rows)),), notes)
