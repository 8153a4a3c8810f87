"""Verdicts: what each condition found, in words, and the error that they end with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from vlcpctl.core.errors import MOST_NAMES, BadInput, GateFailed
from vlcpctl.files.inputs import converted
from vlcpctl.report.facts.table import SMALL
from vlcpctl.report.gates.grammar import OPERATORS, is_beyond
from vlcpctl.report.scores.drops import Against

_OF_CHANCE = frozenset(
    {"against", "samples", "se", "low", "high", "comparisons", "chance", "sees"}
    | {"is_resolved", "is_clear"}
)
GAINS = frozenset({"bwt_gem"})  # metrics whose losses are negative
LOSSES = frozenset({"drop", "worst_drop", "step_drop", "worst_week"}) | GAINS
_EARLY = "not defined yet (1 task)"
_SINCE: dict[Against, str] = {
    "baseline": "",
    "step before": " since the step before",
    "learned": " since it was learned",
    "old index": "",
    "new index": "",
}
_TOO_SMALL = "not judged (fewer than 50 test images)"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one condition on one run, gallery or data set.

    `undefined` is why `value` is None, and `advice` what to do about it; `passes` is whether a
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
    advice: str | None = None
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

    def sentence(self, *, names_track: bool = False) -> str:
        """What was found, such as "ctp: drop.rm on coco = 6.2500 > 5", for any outcome.

        A loss that was judged against chance has its interval, and what chance reaches.
        """
        data = f" on {self.data}" if self.data is not None else ""
        track = f" ({self.track})" if names_track and self.track else ""
        since = _SINCE[self.against] if self.against is not None else ""
        subject = f"{self.run}: {self.metric}{data}{since}{track}"
        if self.value is None:
            if self.is_early:
                why = self.undefined if self.undefined == SMALL else "because forgetting needs two"
                return f"{subject} is {self._early}, {why}"
            return f"{subject} is undefined, {self.undefined}"
        interval = "" if self.low is None else f" (95 % {self.low:.2f} to {self.high:.2f})"
        sign = "" if self.exceeds else ", not"
        return f"{subject} = {self.value:.4f}{interval}{sign} {self.comparison}{self._by_chance}"

    @property
    def exceeds(self) -> bool:
        """Whether the value is beyond the bound, which for a loss may be chance."""
        _, comparison, _ = self.condition.rsplit(":", 2)
        return self.value is not None and is_beyond(self.value, comparison, self.bound)

    @property
    def _by_chance(self) -> str:
        """What is said of chance behind a loss, and of one that is not resolved."""
        if self.chance is None:
            return ""
        if self.exceeds:
            but = "and" if self.holds else "but"
            return f", {but} chance alone reaches {self.chance:.2f}"
        return "" if self.is_resolved else ", not resolved"

    def as_json(self) -> dict[str, Any]:
        """The verdict's fields and outcome; a bound that is not recorded is null.

        Those of a loss that was judged against chance are left out of other verdicts.
        """
        found = {k: v for k, v in asdict(self).items() if v is not None or k not in _OF_CHANCE}
        bound = self.bound if math.isfinite(self.bound) else None
        return found | {"bound": bound, "outcome": self.outcome}


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
