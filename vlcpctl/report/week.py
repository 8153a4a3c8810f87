"""The page of a week: may it be deployed, what was lost, what changed, must the index be rebuilt.

`week_page` gives the page and its lines in the terminal, which are made of the same sentences and
scores. What is not the same when a week is made again, its date and cost, is in <time> elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.words import duration, printable, size, wrapped
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.metrics.chance import margin_of
from vlcpctl.report.charts import Floats, Line, RunStyle
from vlcpctl.report.forgotten import Library, Tally, find_forgotten, lost_cards, open_library
from vlcpctl.report.gates import GAINS, LOSSES, Verdict, in_words
from vlcpctl.report.html import render, source
from vlcpctl.report.markup import Markup
from vlcpctl.report.ranks import ranks_of
from vlcpctl.report.report import Document, drops_of
from vlcpctl.report.rollout import NEITHER, roll_out_table
from vlcpctl.report.scores import Against, Drop, earlier_tasks
from vlcpctl.report.table import UNDEFINED, Table, fixed
from vlcpctl.report.training import loss_chart, read_log

if TYPE_CHECKING:
    from vlcpctl.evaluation.rank_files import SavedRanks

MOST_LOST = 20  # queries of guards that are shown

_LEAST_SCALE = 5.0  # points on each side of zero that a bar shows at least
_HALF = 10  # characters of a bar in the terminal, on each side of zero
_MOST_SAID, _MOST_SCORES = 4, 6  # sentences and scores in the terminal
_NAME, _SINCE = 23, 10  # characters of columns
_ROWS = 300  # of the log
_TERMS = ("contrastive", "loss")  # the first that a log has is drawn

Pairs = Mapping[str, tuple[str, str]]  # by name: in the week before, and in this one


@dataclass(frozen=True, kw_only=True)
class Week:
    """What a page says of a week beside its report.

    `remarks` come first in the verdict. `settings` are those that differ from the week before,
    `images` the tasks with the pictures of guards, `checkpoint` that of the training, whose log is
    drawn, `disk` bytes.
    """

    state: str
    number: int
    date: str
    page: str
    sources: Sequence[str]
    model: str
    accepted: bool
    remarks: Sequence[str] = ()
    warnings: Sequence[str] = ()
    settings: Pairs
    data: Pairs
    images: Sequence[Path] = ()
    checkpoint: Path | None = None
    seconds: float
    disk: int

    @property
    def title(self) -> str:
        """Such as "prod, week 3"."""
        return f"{self.state}, {week_name(self.number)}"

    @property
    def before(self) -> str:
        """The name of the model that the week continues."""
        return week_name(self.number - 1)


class Part(NamedTuple):
    """What is said of a subject, on a line each; `shown` is what only the page has of it."""

    name: str
    said: Sequence[str]
    shown: Markup = Markup("")


class Moved(NamedTuple):
    """How a score changed since an earlier model, in points: below zero is worse.

    `low` and `high` are the ends of the 95 % interval of the change, if ranks were saved, `images`
    those of the test, `bound` the loss that a condition rejects.
    """

    name: str
    since: str
    before: float
    now: float
    low: float | None = None
    high: float | None = None
    images: int | None = None
    bound: float | None = None

    @property
    def points(self) -> float:
        """The change."""
        return self.now - self.before

    @property
    def interval(self) -> str:
        """Such as "-1.5 to 4.1"."""
        if self.low is None or self.high is None:
            return UNDEFINED
        return f"{fixed(self.low, 1)} to {fixed(self.high, 1)}"


def moved(drop: Drop, name: str, since: str, bound: float | None = None) -> list[Moved]:
    """The change that a drop is; none if either side was not measured."""
    if drop.baseline is None or drop.last is None or drop.drop is None:
        return []
    means = drop.baseline.mean, drop.last.mean
    found = Moved(name, since, *means, images=drop.curve.images, bound=bound)
    ends = drop.interval
    return [found if ends is None else found._replace(low=-ends.high, high=-ends.low)]


def week_name(number: int) -> str:
    """The one name of a week.

    >>> week_name(2), week_name(0)
    ('week 2', 'the start')
    """
    return f"week {number}" if number else "the start"


def week_page(
    week: Week, document: Document, ranks: Sequence[SavedRanks] = ()
) -> tuple[str, list[str]]:
    """The text of the page, and its lines in the terminal, 80 columns wide.

    `document` is the report of the week with its verdicts, `ranks` the files that it was built
    with. The same arguments give the same page. Raises BadInput if a file of the week cannot be
    read.
    """
    found = _Found(week, document, ranks)
    return found.page(), found.lines()


@dataclass(frozen=True, eq=False)
class _Found:
    """What the last model scores on its weeks and guards, compared with earlier models."""

    week: Week
    document: Document
    ranks: Sequence[SavedRanks] = field(repr=False)

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of weeks by those of their tasks."""
        runs = [run for track in self.document.tracks for run in track.runs]
        return {one: week_name(step + 1) for run in runs for step, one in enumerate(run.tasks)}

    @cached_property
    def _bounds(self) -> dict[str, float]:
        """The losses that conditions reject in the metrics that are shown."""
        shown = {"", *map(self.document.key, self.document.tracks)}
        return {
            one.name: abs(one.bound)
            for one in self.document.verdicts
            if math.isfinite(one.bound) and one.metric.partition(".")[2] in shown
        }

    @cached_property
    def _drops(self) -> dict[Against, list[Drop]]:
        """Against each earlier model, in the main metric of each track."""
        document = self.document
        others: tuple[Against, ...] = ("step before", "learned")
        ranks = ranks_of(document.curves, self.ranks, others)
        found: dict[Against, list[Drop]] = {
            one: drops_of(document.curves, lambda track: [document.key(track)], ranks, one)
            for one in others
        }
        shown = [one for one in document.drops if one.key == document.key(one.curve.track)]
        return found | {"baseline": shown}

    def _earlier(self, against: Against) -> list[Drop]:
        """On the weeks before this one that have test pairs."""
        known = set(earlier_tasks(self.document.curves))
        drops = self._drops[against]
        return [one for one in drops if one.curve in known]

    @cached_property
    def learned(self) -> list[Moved]:
        """On the test of the week itself, since the model before it."""
        last, name = self.week.number - 1, f"learned: {week_name(self.week.number)}"
        drops = (one for one in self._drops["step before"] if one.curve.task == last)
        return [found for one in drops for found in moved(one, name, self.week.before)]

    @cached_property
    def kept(self) -> list[Moved]:
        """On the earlier weeks: their mean, and the one that has lost most since either model."""
        learned = [one for one in self._earlier("learned") if one.drop is not None]
        if not learned:
            return []
        since = [(one, "learning") for one in learned]
        since += [(one, self.week.before) for one in self._earlier("step before")]
        bound = self._bounds.get("worst_week")
        worst = [
            found
            for one, words in since
            for found in moved(
                one, f"kept: worst, {self.names.get(one.data, one.data)}", words, bound
            )
        ]
        shown = [min(worst, key=lambda one: one.points)]
        mean = _mean(learned, self._bounds.get("bwt_gem"))
        return [mean, *(shown if len(learned) > 1 or bound is not None else [])]

    @cached_property
    def guards(self) -> list[Moved]:
        """On each guard, since the start and since the model before."""
        bound = self._bounds.get("worst_drop", self._bounds.get("drop"))
        since = [
            (one, week_name(0), bound) for one in self._drops["baseline"] if one.curve.is_guard
        ]
        if self.week.number > 1:
            before, bound = self.week.before, self._bounds.get("step_drop")
            since += [
                (one, before, bound) for one in self._drops["step before"] if one.curve.is_guard
            ]
        since.sort(key=lambda found: found[0].data)
        return [found for one, words, most in since for found in moved(one, one.data, words, most)]

    @cached_property
    def lost(self) -> Sequence[Tally] | None:
        """What guards lost since the week before, or where it has no ranks, since the start."""
        guards = [one for one in self.document.curves if one.is_guard]
        if not guards:
            return None
        return find_forgotten(guards, self.ranks, ("step before", "baseline")).tallies

    @cached_property
    def roll_out(self) -> Table | None:
        """The table of what happens to an index, if it was measured."""
        for track in self.document.tracks:
            found = [one for one in self.document.roll_outs if one.curve.track is track]
            if table := roll_out_table(found, self.document.key(track)):
                return table
        return None

    @property
    def index(self) -> str:
        """What the roll-out says of the index, in words; empty if it was not measured."""
        return next(iter(self.roll_out.notes), "") if self.roll_out else ""

    @property
    def scale(self) -> float:
        """The points on each side of zero of all bars: five, or more if a loss or bound needs them.

        Gains may be larger, and end with an arrow.
        """
        ends = (max(-one.points, one.bound or 0.0) for one in (*self.kept, *self.guards))
        return _LEAST_SCALE * math.ceil(max([_LEAST_SCALE, *ends]) / _LEAST_SCALE)

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        return in_words(self.document.verdicts, accepted=self.week.accepted)

    def reasons(self) -> Iterator[str]:
        """The sentences of the verdict: what it means, and which losses decide it."""
        yield from self.week.remarks
        verdicts = self.document.verdicts
        losses = [one for one in verdicts if one.name in LOSSES and one.value is not None]
        unresolved = [one for one in verdicts if one.is_resolved is False]
        shown: Iterable[Verdict] = unresolved
        if not self.week.accepted:
            yield f"do not deploy it: the state stays at {self.week.before}"
            shown = (one for one in verdicts if not one.passes)
        elif verdicts and NEITHER in self.index:
            yield "no loss rejects it, but items in the index lose too much: do not deploy it"
        elif unresolved:
            yield "it may be deployed: no loss rejects it, but these may be above their bounds"
        elif losses and all(one.is_resolved for one in losses):
            yield "it may be deployed: every loss plus 1.96 standard errors is within its bound"
            shown = losses
        elif verdicts:
            yield "it may be deployed: no condition rejects it; some losses have no interval"
            shown = losses
        else:
            yield "it was not judged: there are no conditions"
        # In the first week the start is the last accepted model, too. Gains come last.
        said = dict.fromkeys(map(self.sentence, shown))
        yield from sorted(said, key=lambda one: " gained " in one)

    def sentence(self, verdict: Verdict) -> str:
        """A verdict with its interval, bound and what chance reaches.

        Such as "00-golden lost 2.4 since the start (95 % -0.5 to 5.3), bound 2, chance 3.5".
        """
        name, value = verdict.name, verdict.value
        data = self.names.get(verdict.data or "", verdict.data or "")
        if value is None:
            return f"{verdict.condition}: {verdict.outcome}"
        if name not in LOSSES:
            on_data = f" on {data}" if data else ""
            return f"{verdict.metric}{on_data} is {fixed(value, 1)}, bound {verdict.comparison}"
        sign = -1 if name in GAINS else 1
        is_loss = sign * value >= 0
        subject = "earlier weeks, on average," if name in GAINS else data or verdict.metric
        key = verdict.metric.rpartition(".")[2]
        of = f" of {key}" if key in METRICS else ""
        is_learned = verdict.against == "learned" or name in GAINS
        since = "learning" if is_learned else week_name(0)
        if verdict.against == "step before" or name == "step_drop":
            since = self.week.before
        verb = "lost" if is_loss else "gained"
        said = f"{subject} {verb} {fixed(abs(value), 1)}{of} since {since}"
        if verdict.low is not None and verdict.high is not None:
            turned = sign if is_loss else -sign
            ends = sorted((turned * verdict.low, turned * verdict.high))
            said += f" (95 % {fixed(ends[0], 1)} to {fixed(ends[1], 1)})"
        said += f", bound {'' if is_loss else 'a loss of '}{sign * verdict.bound + 0.0:g}"
        if verdict.chance is not None and is_loss:
            said += f", chance {fixed(verdict.chance, 1)}"
        return said

    def lost_words(self) -> Iterator[str]:
        """How many right answers at rank 1 each guard lost and gained, in words."""
        lost = self.lost or []
        for task in dict.fromkeys(one.task for one in lost):
            of = [one for one in lost if one.task == task]
            counts = f"{sum(one.forgotten for one in of)} of {sum(one.right_then for one in of)}"
            gained, since = sum(one.gained for one in of), week_name(of[0].learned + 1)
            yield f"{task}: {counts} answers at rank 1 lost since {since}, {gained} gained"
        if not lost:
            yield "unknown: no ranks were saved"

    @cached_property
    def loss(self) -> tuple[str, Floats] | None:
        """A term of the training's loss, (2, N): the contrastive one, if it was logged."""
        if self.week.checkpoint is None:
            return None
        log = read_log(self.week.checkpoint, CheckpointManifest.read(self.week.checkpoint), _ROWS)
        return next(((one, log[one]) for one in _TERMS if one in log), None) if log else None

    def parts(self) -> Iterator[Part]:
        """What the page and the terminal say below the scores."""
        week = self.week
        if self.roll_out is not None:
            measured = replace(self.roll_out, notes=self.roll_out.notes[1:])
            # It begins with the names of the model and of its only index.
            said = self.index.partition(": ")[2] or self.index
            yield Part("roll-out", [said], render("parts.html", "table", measured))
        settings = ", ".join(_changed(week.settings)) if week.number > 1 else "first week"
        data = ", ".join(_changed(week.data))
        yield Part("changed", [f"{settings or 'no setting'}; {data}"])
        if self.lost is not None:
            cards = Markup("")
            if any(one.changes for one in self.lost):
                library = Library(open_library(week.images), frozenset({"test"}))
                cards = lost_cards(self.lost, library, MOST_LOST)
            yield Part("lost", list(self.lost_words()), cards)
        if self.loss is not None:
            yield self._curve(*self.loss)
        seconds = f", {duration(week.seconds)}" if week.seconds else ""
        yield Part("cost", [f"{size(week.disk)}{seconds}"])

    def _curve(self, term: str, points: Floats) -> Part:
        """The loss over the steps: the means of its first and its last tenth, or five, and all."""
        x, y = points
        known = y[np.isfinite(y)]
        count = max(1, len(known) // 10, min(5, len(known) // 2))
        first, last = float(known[:count].mean()), float(known[-count:].mean())
        line = Line(term, RunStyle(1, 0), np.stack([x, y, y, y]))
        ends = float(x[0]), float(max(x[-1], x[0] + 1))
        chart = loss_chart(term, "", ("optimizer step", ""), (line,), ends)
        said = f"{term} {first:.2f} at first, {last:.2f} at the end"
        return Part("loss", [said], render("week.html", "loss", chart.svg()))

    def page(self) -> str:
        """The text of the page."""
        scores = [*self.learned, *self.kept, *self.guards]
        return render(
            "week.html",
            "page",
            week=self.week,
            verdict=self.verdict,
            reasons=self.reasons(),
            scale=self.scale,
            scores=[(one, bar_places(one, self.scale)) for one in scores],
            parts=self.parts(),
            style=source("style.css", "week.css"),
        )

    def lines(self) -> list[str]:
        """The verdict, the scores and what is said below them on the page.

        Of many sentences and scores the first are shown, gains last; of warnings all.
        """
        week = self.week
        found = [f"{week.title}: {self.verdict}  ({week.date})"]
        found += _cut([f"  {one}" for one in self.reasons()], _MOST_SAID)
        found += [f"  warning: {one}" for one in week.warnings]
        names = f"  {'score':<{_NAME}}{'since':<{_SINCE}}{'before':>7}{'now':>7}{'change':>8}  "
        found.append(f"{names}{f'-{self.scale:g}':<{_HALF}}0{f'+{self.scale:g}':>{_HALF}}")
        guards = sorted(self.guards, key=lambda one: one.points)
        scores = [_score_line(one, self.scale) for one in (*self.learned, *self.kept, *guards)]
        found += _cut(scores, _MOST_SCORES)
        for part in self.parts():
            found += _cut([f"  {part.name:<10}{one}" for one in part.said], _MOST_SAID)
        # Below the text of a line that begins with the name of a part.
        lines = [
            line
            for one in found
            for line in wrapped(printable(one), 12 if one[11:12] == " " else 4)
        ]
        return [*lines, f"  page      {printable(week.page)}"]


def _mean(learned: Sequence[Drop], bound: float | None) -> Moved:
    """The mean over earlier weeks, with its interval if each has one."""
    before, now = (
        math.fsum(one.mean for one in side if one) / len(learned)
        for side in zip(*((one.baseline, one.last) for one in learned), strict=True)
    )
    name = f"kept: mean of {len(learned)} weeks" if len(learned) > 1 else "kept: the earlier week"
    images = [one.curve.images for one in learned if one.curve.images is not None]
    total = sum(images) if len(images) == len(learned) else None
    found = Moved(name, "learning", before, now, images=total, bound=bound)
    intervals = [one.interval for one in learned if one.interval is not None]
    if len(intervals) < len(learned):
        return found
    margin = margin_of(math.sqrt(math.fsum(one.error**2 for one in intervals)) / len(intervals))
    return found._replace(low=found.points - margin, high=found.points + margin)


def bar_places(one: Moved, scale: float) -> dict[str, float | None]:
    """Where the change, its interval and its bound are on a bar, from -1 at -scale to 1 at scale.

    None is nowhere. What is outside is at the edge; `outside` is then -1 or 1 for the change.
    """
    bound = None if one.bound is None else -one.bound
    found = {"value": one.points, "low": one.low, "high": one.high, "bound": bound}
    places = {
        name: None if points is None else max(-1.0, min(1.0, points / scale))
        for name, points in found.items()
    }
    return places | {"outside": (one.points > scale) - (one.points < -scale)}


def _changed(pairs: Pairs) -> Iterator[str]:
    """Each value of a week, and what it was in the week before if that is another one."""
    for name, (before, now) in pairs.items():
        yield f"{name} {now}" + (f" (was {before})" if before not in {now, "-"} else "")


def _score_line(one: Moved, scale: float) -> str:
    """A score with its bar: the interval as dashes, the change as o, and ! as the bound."""
    places = bar_places(one, scale)
    at = {name: _HALF + round(place * _HALF) for name, place in places.items() if place is not None}
    cells = [" "] * (2 * _HALF + 1)
    cells[_HALF] = "|"
    if "low" in at and "high" in at:
        cells[at["low"] : at["high"] + 1] = "-" * (at["high"] + 1 - at["low"])
    if "bound" in at:
        cells[at["bound"]] = "!"
    cells[at["value"]] = {-1: "<", 0: "o", 1: ">"}[int(places["outside"] or 0)]
    name = printable(one.name)
    name = name if len(name) < _NAME else f"{name[: _NAME - 4]}..."
    numbers = f"{one.before:>7.1f}{one.now:>7.1f}{one.points:>+8.1f}"
    return f"  {name:<{_NAME}}{one.since:<{_SINCE}}{numbers}  {''.join(cells).rstrip()}"


def _cut(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], "  ... the rest is on the page"]
