"""The page of a week in the terminal: at most 15 lines, or as many more as there are warnings."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator

from vlcpctl.core.words import printable
from vlcpctl.report.render.week import Change, WeekFacts

MOST_LINES = 15
WIDTH = 80  # at least: columns that the lines are made for

_FEWEST = 3  # lines of sentences that there is always room for
_NAME, _SINCE = 23, 10  # characters of columns
_HALF = 10  # of a bar, on each side of zero
_DOTS = "..."
_FEW = 9.95  # a smaller number has a decimal
# Units of time with their seconds, up to how many seconds.
_UNITS = (("s", 1, 600), ("min", 60, 36_000), ("h", 3600, math.inf))
_PHASES = {  # of commands; few and short, so that all of them fit
    "split": "data",
    "buffer": "data",
    "train-step": "train",
    "merge": "train",
    "eval-retrieval": "eval",
    "eval-zeroshot": "eval",
    "forgetting-report": "report",
}
_CHANCE = re.compile("; chance alone reaches (.*) here$")  # is shorter here


def week_lines(facts: WeekFacts, width: int | None = WIDTH) -> list[str]:
    """The verdict, the scores and one line for each other section of the page.

    Lines that are wider than `width` are cut, but for that of the page; None cuts none, as in a log
    that nobody can widen. Scores and sentences that do not fit into 15 lines are left out, those of
    gains first; warnings are neither cut nor left out.
    """
    below = list(_below(facts))
    room = MOST_LINES - len(below) - 3  # the title, the heading of the scores, and the page
    changes = [*facts.learned, *facts.kept, *facts.guards]
    warnings = [
        line for one in facts.warnings for line in _wrapped(f"  warning: {printable(one)}", width)
    ]
    said = sorted(facts.reasons(), key=lambda one: " gained " in one)
    about = ["  " + _CHANCE.sub(r", chance \1", one) for one in said]
    most = max(_FEWEST, room - len(changes) - len(warnings))
    about = _cut(about, most, "the rest is on the page")
    scores = _scores(facts, changes, room - len(about))
    title = f"{facts.title}: {facts.verdict}  ({facts.date})"

    def shown(lines: list[str]) -> list[str]:
        return [one if width is None else _clipped(one, width) for one in map(printable, lines)]

    rest = [_heading(facts.scale), *scores, *below]
    page = f"  page      {printable(facts.page)}"
    return [*shown([title, *about]), *warnings, *shown(rest), page]


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)


def _below(facts: WeekFacts) -> Iterator[str]:
    changed = [f"{name} {now} (was {before})" for name, (before, now) in facts.changed.items()]
    sizes = [f"{name} {now}" for name, (_, now) in facts.data.items()]
    first = ", ".join(changed) if changed else "no setting"
    yield f"  changed   {first if facts.number > 1 else 'first week'}; {', '.join(sizes)}"
    for one in list(facts.lost_words())[:1]:
        yield f"  lost      {one}"
    if facts.loss is not None:
        yield f"  loss      {facts.loss.words}"
    if facts.index:
        # It begins with the names of the model and of its only index.
        yield f"  roll-out  {facts.index.partition(': ')[2] or facts.index}"
    yield _cost(facts)


def _cost(facts: WeekFacts) -> str:
    """The disk, the time, and that of each phase in the same unit, longest first."""
    phases: dict[str, float] = {}
    for command, seconds in facts.seconds.items():
        phase = _PHASES.get(command, command)
        phases[phase] = phases.get(phase, 0.0) + seconds
    line = f"  cost      {facts.weight()}"
    total = sum(phases.values())
    if not total:
        return line
    unit, length = next((unit, length) for unit, length, most in _UNITS if total < most)
    longest = sorted(phases.items(), key=lambda item: -item[1])
    parts = (f"{phase} {_short(seconds / length)}" for phase, seconds in longest)
    return f"{line}, {_short(total / length)} {unit}: {', '.join(parts)}"


def _short(number: float) -> str:
    return f"{number:.{0 if number >= _FEW else 1}f}"


def _heading(scale: float) -> str:
    names = f"  {'score':<{_NAME}}{'since':<{_SINCE}}{'before':>7}{'now':>7}{'change':>8}  "
    ends = (f"-{scale:g}", f"+{scale:g}")
    return f"{names}{ends[0]:<{_HALF}}0{ends[1]:>{_HALF}}"


def _scores(facts: WeekFacts, changes: list[Change], most: int) -> list[str]:
    """The lines of the scores; of too many, the mean of earlier weeks and the largest losses."""
    if len(changes) > most:
        guards = sorted(facts.guards, key=lambda one: one.points)
        changes = [*facts.learned[:1], *facts.kept[:1], *guards]
    return _cut([_score(one, facts.scale) for one in changes], most, "the rest is on the page")


def _score(one: Change, scale: float) -> str:
    name = _clipped(printable(one.name), _NAME - 1)
    numbers = f"{one.before:>7.1f}{one.now:>7.1f}{one.points:>+8.1f}"
    return f"  {name:<{_NAME}}{one.since:<{_SINCE}}{numbers}  {_bar(one, scale)}"


def _bar(one: Change, scale: float) -> str:
    """The interval as dashes and the change as o, between -scale and scale; ! is the bound."""

    def at(points: float) -> int:
        return _HALF + round(max(-1.0, min(1.0, points / scale)) * _HALF)

    cells = [" "] * (2 * _HALF + 1)
    cells[_HALF] = "|"
    if one.low is not None and one.high is not None:
        for place in range(at(one.low), at(one.high) + 1):
            cells[place] = "-"
    if one.bound is not None:
        cells[at(-one.bound)] = "!"
    outside = ">" if one.points > scale else "<"
    cells[at(one.points)] = "o" if abs(one.points) <= scale else outside
    return "".join(cells).rstrip()


def _cut(lines: list[str], most: int, rest: str) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"  {_DOTS} {rest}"]


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - len(_DOTS)]}{_DOTS}"
