"""The page of a week: may it be deployed, what was lost, what changed, must the index be rebuilt.

`vlcpctl update` collects the facts, and shows the same in the terminal (week_lines.py). What is not
the same when a week is made again, its date and seconds, is in <time> elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vlcpctl.core.words import duration, size
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.report.cards.training_log import TermCurve
from vlcpctl.report.charts import Panel, PanelLine, RunStyle
from vlcpctl.report.forgotten.changes import Example, Forgotten, TaskChanges
from vlcpctl.report.gates import GAINS, LOSSES, Verdict, in_words
from vlcpctl.report.markup import Markup
from vlcpctl.report.render.forgotten import lost_cards
from vlcpctl.report.render.templates import render, source
from vlcpctl.report.rollout import NEITHER
from vlcpctl.report.scores import START, Drop
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, fixed

MOST_LOST = 20  # queries of guards that are shown
UNKNOWN = "-"

_LEAST_SCALE = 5.0  # points on each side of zero that a bar shows at least
# A loss ends at chance if it is at least this share of it, and is flat if the means of the first
# and the last tenth of its steps differ by at most this share.
_AT_CHANCE, _FLAT = 0.97, 0.02
_FEWEST_STEPS = 10  # of a curve that is judged
_BAR, _EDGE = 160, 4  # px: width, and what is left free at each end
Settings = Mapping[str, tuple[str, str]]  # by name: in the week before, and in this one


@dataclass(frozen=True)
class Change:
    """How a score changed since an earlier model, in points: below zero is worse.

    `before` and `now` are its scores, `low` and `high` the ends of the 95 % interval of the change,
    if ranks were saved, `images` those of the test. `bound` is the loss that a condition rejects.
    """

    name: str
    since: str
    before: float
    now: float
    low: float | None = None
    high: float | None = None
    images: int | None = None
    bound: float | None = None

    @classmethod
    def of(cls, drop: Drop, name: str, since: str, bound: float | None = None) -> Change | None:
        """The change that a drop is; None if either side was not measured."""
        if drop.baseline is None or drop.last is None:
            return None
        low, high = None, None
        if drop.interval is not None:
            low, high = -drop.interval.high, -drop.interval.low
        return cls(name, since, drop.baseline.mean, drop.last.mean, low, high, drop.images, bound)

    @property
    def points(self) -> float:
        """The change."""
        return self.now - self.before

    @property
    def interval(self) -> str:
        """Such as "-1.5 to 4.1"."""
        if self.low is None or self.high is None:
            return UNKNOWN
        return f"{fixed(self.low, 1)} to {fixed(self.high, 1)}"


@dataclass(frozen=True)
class LossCurve:
    """A term of the loss over the steps, and what it is where nothing was learned."""

    curve: TermCurve
    chance: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """The means of the first and of the last tenth of its values, or of five of a few."""
        values = self.curve.values[np.isfinite(self.curve.values)]
        count = max(1, len(values) // 10, min(5, len(values) // 2))
        return float(values[:count].mean()), float(values[-count:].mean())

    @property
    def words(self) -> str:
        """Where it begins and ends, with a remark if that is at chance or it is flat."""
        first, last = self.ends
        said = f"{self.curve.term} {first:.2f} at first, {last:.2f} at the end"
        said += "" if self.chance is None else f"; chance is {self.chance:.2f}"
        return f"{said}: {self.remark}" if self.remark else said

    @property
    def remark(self) -> str:
        """What should be looked at; empty if nothing."""
        first, last = self.ends
        if len(self.curve.values) < _FEWEST_STEPS:
            return ""
        if self.chance is not None and last >= _AT_CHANCE * self.chance:
            return "it ends at chance, as a model that has learned nothing"
        return "it is flat" if abs(first - last) <= _FLAT * abs(first) else ""


@dataclass(frozen=True, kw_only=True)
class WeekFacts:
    """What the page of a week says. `weeks` has the names of weeks by those that tables have.

    `lost` has what was lost on guards since the week before, with the library of pictures;
    `attempts` one mapping for each training of the week, if there were several.
    """

    state: str
    number: int
    date: str
    page: str
    sources: Sequence[str]
    model: str
    accepted: bool
    verdicts: Sequence[Verdict]
    attempts: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    learned: Sequence[Change] = ()
    kept: Sequence[Change] = ()
    guards: Sequence[Change] = ()
    settings: Settings
    data: Settings
    lost: Forgotten | None = None
    loss: LossCurve | None = None
    roll_out: Table | None = None
    seconds: Mapping[str, float]
    disk: Mapping[str, int]  # bytes of each part of the week
    tables: Sequence[Table] = ()
    weeks: Mapping[str, str]

    @property
    def title(self) -> str:
        """Such as "prod, week 3"."""
        return f"{self.state}, week {self.number}"

    @property
    def before(self) -> str:
        """The name of the model that the week continues."""
        return week_name(self.number - 1)

    @property
    def losses(self) -> list[Verdict]:
        """The verdicts on losses that have a value."""
        return [one for one in self.verdicts if one.name in LOSSES and one.value is not None]

    @property
    def unresolved(self) -> list[Verdict]:
        """The verdicts on losses that may be above their bounds."""
        return [one for one in self.verdicts if one.is_resolved is False]

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        return in_words(self.verdicts, accepted=self.accepted)

    def reasons(self) -> Iterator[str]:
        """The sentences of the verdict: what it means, and which losses decide it."""
        shown: Iterable[Verdict] = self.losses
        if not self.accepted:
            yield f"do not deploy it: the state stays at {self.before}"
            shown = (one for one in self.verdicts if not one.passes)
        elif self.verdicts and NEITHER in self.index:
            yield "no loss rejects it, but items in the index lose too much: do not deploy it"
            shown = self.unresolved
        elif self.unresolved:
            yield "it may be deployed: no loss rejects it, but these may be above their bounds"
            shown = self.unresolved
        elif self.losses and all(one.is_resolved for one in self.losses):
            yield "it may be deployed: every loss plus 1.96 standard errors is within its bound"
        elif self.verdicts:
            yield "it may be deployed: no condition rejects it; some losses have no interval"
        else:
            yield "it was not judged: there are no conditions"
        # In the first week the start is the last accepted model, too.
        yield from dict.fromkeys(map(self.sentence, shown))
        if len(self.attempts) > 1:
            found = ("accepted" if one.get("accepted") else "rejected" for one in self.attempts)
            count = len(self.attempts)
            yield f"trained {count} times, the last counts: {', then '.join(found)}"

    def sentence(self, verdict: Verdict) -> str:
        """A verdict with its interval, bound and what chance reaches.

        Such as "00-golden lost 2.4 since the start (95 % -0.5 to 5.3), bound 2; chance alone
        reaches 3.5 here".
        """
        name, value = verdict.name, verdict.value
        data = self.renamed(verdict.data or "")
        if value is None:
            return f"{verdict.condition}: {verdict.outcome}"
        if name not in LOSSES:
            on_data = f" on {data}" if data else ""
            return f"{verdict.metric}{on_data} is {fixed(value, 1)}, bound {verdict.comparison}"
        sign = -1 if name in GAINS else 1
        is_loss = sign * value >= 0
        subject = "earlier weeks, on average," if name in GAINS else data or verdict.metric
        verb = "lost" if is_loss else "gained"
        key = verdict.metric.rpartition(".")[2]
        of = f" of {key}" if key in METRICS else ""
        said = f"{subject} {verb} {fixed(abs(value), 1)}{of} {self._since(verdict)}"
        if verdict.low is not None and verdict.high is not None:
            turned = sign if is_loss else -sign
            ends = sorted((turned * verdict.low, turned * verdict.high))
            said += f" (95 % {fixed(ends[0], 1)} to {fixed(ends[1], 1)})"
        said += f", bound {'' if is_loss else 'a loss of '}{sign * verdict.bound + 0.0:g}"
        if verdict.chance is not None and is_loss:
            said += f"; chance alone reaches {fixed(verdict.chance, 1)} here"
        return said

    def _since(self, verdict: Verdict) -> str:
        name = verdict.name
        if verdict.against == "step before" or name == "step_drop":
            return f"since {self.before}"
        is_learned = verdict.against == "learned" or name in GAINS
        return "since learning" if is_learned else "since the start"

    @property
    def index(self) -> str:
        """What the roll-out says of the index, in words; empty if it was not measured."""
        return next(iter(self.roll_out.notes), "") if self.roll_out else ""

    @property
    def scale(self) -> float:
        """The points on each side of zero of all bars: five, or more if a loss or bound needs them.

        Gains may be larger, and end with an arrow.
        """
        found = [_LEAST_SCALE]
        for one in (*self.kept, *self.guards):
            found += [-one.points, one.bound or 0.0]
        return _LEAST_SCALE * math.ceil(max(found) / _LEAST_SCALE)

    @property
    def changed(self) -> Settings:
        """The settings that differ from those of the week before."""
        return {name: pair for name, pair in self.settings.items() if pair[0] != pair[1]}

    def renamed(self, text: str) -> str:
        """A text with the one name of each week."""
        return self.weeks.get(text, text)

    def chosen(self) -> list[tuple[TaskChanges, str, Example]]:
        """The lost queries that are shown: the deepest falls of each guard in turn."""
        lists = [
            [(place, one, way, example) for place, example in enumerate(changed.forgotten)]
            for one in (self.lost.tasks if self.lost else ())
            for way, changed in one.ways.items()
        ]
        every = sorted((one for found in lists for one in found), key=lambda one: one[0])
        return [found[1:] for found in every[:MOST_LOST]]

    def lost_words(self) -> Iterator[str]:
        """How many right answers at rank 1 each guard lost and gained, in words."""
        for one in self.lost.tasks if self.lost else ():
            lost, right, gained = (
                one.total(name) for name in ("n_forgotten", "right_then", "n_gained")
            )
            since = week_name(one.learned + 1) if one.learned != START else "the start"
            counts = f"{lost} of {right} answers at rank 1 lost since {since}, {gained} gained"
            yield f"{one.task}: {counts}"

    def cost(self) -> str:
        """The seconds of all commands."""
        return duration(sum(self.seconds.values())) if self.seconds else UNKNOWN

    def weight(self) -> str:
        """The disk that the week takes."""
        return size(sum(self.disk.values()))


class _Bar(NamedTuple):
    """The places in px of what a bar shows; None: not shown. `clipped` is -1 or 1 at an edge."""

    value: float
    low: float | None
    high: float | None
    bound: float | None
    clipped: int


def week_name(number: int) -> str:
    """The one name of a week.

    >>> week_name(2), week_name(0)
    ('week 2', 'the start')
    """
    return f"week {number}" if number else "the start"


def week_page(facts: WeekFacts) -> str:
    """The text of the page; the same facts give the same bytes."""
    chosen = facts.chosen()
    changes = [*facts.learned, *facts.kept, *facts.guards]
    return render(
        "week.html",
        "page",
        facts=facts,
        style=Markup(source("style.css") + source("week.css")),
        verdict=facts.verdict.partition(",")[0],
        changes=[(one, _bar(one, facts.scale), _described(one)) for one in changes],
        bar_width=_BAR,
        changed=_changed_table(facts),
        lost=lost_cards(facts.lost, chosen) if facts.lost and chosen else "",
        count=sum(one.total("n_forgotten") for one in facts.lost.tasks) if facts.lost else 0,
        shown=len(chosen),
        curve=_curve(facts.loss) if facts.loss else "",
        cost=[(name, duration(seconds)) for name, seconds in facts.seconds.items()],
        disk=[(name, size(count)) for name, count in facts.disk.items()],
        tables=[*facts.tables, _settings_table(facts)],
    )


def _bar(one: Change, scale: float) -> _Bar:
    """Where the change, its interval and its bound are, from -scale to scale; outside: the edge."""

    def at(points: float | None) -> float | None:
        if points is None:
            return None
        share = max(-1.0, min(1.0, points / scale))
        return round(_BAR / 2 + share * (_BAR / 2 - _EDGE), 1)

    clipped = (one.points > scale) - (one.points < -scale)
    bound = None if one.bound is None else at(-one.bound)
    return _Bar(at(one.points) or 0.0, at(one.low), at(one.high), bound, clipped)


def _described(one: Change) -> str:
    ends = "" if one.low is None else f", 95 % {one.interval}"
    bound = "" if one.bound is None else f", rejected below -{one.bound:g}"
    return f"{fixed(one.points, 1)} points{ends}{bound}"


def _changed_table(facts: WeekFacts) -> Table:
    """What differs from the week before: settings, and the sizes and sources of the data."""
    columns = ("", facts.before if facts.number > 1 else "before", week_name(facts.number))
    groups = [
        _group("settings", facts.changed),
        _group("data", facts.data),
    ]
    return Table(
        "What changed since last week" if facts.number > 1 else "The first week",
        tuple(Column(name, is_number=False) for name in columns),
        tuple(group for group in groups if group.rows),
        () if facts.changed else ("no setting differs",) if facts.number > 1 else (),
    )


def _group(name: str, pairs: Settings) -> RowGroup:
    rows = (
        (TableCell(one), TableCell(before), TableCell(now, is_strong=before != now))
        for one, (before, now) in pairs.items()
    )
    return RowGroup(name, tuple(rows))


def _settings_table(facts: WeekFacts) -> Table:
    rows = tuple((TableCell(name), TableCell(now)) for name, (_, now) in facts.settings.items())
    names = (Column("setting", is_number=False), Column("value", is_number=False))
    return Table("Settings", names, (RowGroup("", rows),))


def _curve(loss: LossCurve) -> Markup:
    """The curve, with a level line where it is at chance."""
    style = RunStyle(1, 0)
    one = loss.curve
    x = one.steps
    lines = [PanelLine(one.term, x, one.values, one.values, one.values)]
    looks = {one.term: style}
    if loss.chance is not None:
        level = np.full(2, loss.chance)
        lines.append(PanelLine("chance", x[[0, -1]], level, level, level))
        looks["chance"] = RunStyle(2, None)
    ends = float(x[0]), float(max(x[-1], x[0] + 1))
    return Panel(one.term, tuple(lines)).svg("optimizer step", ends, looks)
