"""What changed with a week: what it learned, and warnings about it, which never reject one.

The bounds were chosen by simulating a year of weeks: docs/results/decisions.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.files.rows import Row, read_rows
from vlcpctl.metrics.chance import WEEKS_A_YEAR, critical_value
from vlcpctl.production.guards import errors_of, guard_ids
from vlcpctl.production.lines import BEFORE, GUARDS, WEEKS, Lines, ranks_file, rows_file
from vlcpctl.production.state import REJECTED, Attempt, State
from vlcpctl.report.intervals import have_same_queries, intervals

KEY = "rm"
_LEARNED = 1.0  # points below which a week was hardly learned
_FEW = 4  # weeks in a row whose mean counts
_PEAK_DROP = 3.0  # points
_IN_A_ROW = 3  # rejections
_GUARD_WEEKS, _GUARD_REJECTIONS = 26, 10  # after which the guard has filtered what it judges


@dataclass(frozen=True)
class Learned:
    """The scores on the test images of a week before and after its training, in percent.

    `low` and `high` are the ends of the 95 % interval of what was learned, None without ranks.
    """

    before: float
    after: float
    images: int | None = None
    low: float | None = None
    high: float | None = None

    @property
    def points(self) -> float:
        """What was learned, in points."""
        return self.after - self.before


def warnings_of(lines: Lines) -> Iterator[str]:
    """The warnings about a judged attempt. Raises BadInput if rows or ranks cannot be read."""
    yield from _of_learning(lines)
    yield from _of_peaks(lines)
    rejected = [one for one in lines.state.attempts.values() if one.status == REJECTED]
    made = lines.made
    if made.status == REJECTED:
        rejected.append(made)
    in_a_row = {one.data for one in rejected if one.parent == made.parent}
    if made.status == REJECTED and len(in_a_row) >= _IN_A_ROW:
        yield (
            f"{len(in_a_row)} weeks in a row are rejected: not one bad week, but data or settings "
            "that drift; the accepted model has truly lost more than its guards show"
        )
    yield from _of_guard_age(lines, rejected)


def learned(state: State, one: Attempt, parent: Attempt, *, has_interval: bool) -> Learned | None:
    """What a week learned, from its rows and, for the interval, its ranks; None if not evaluated.

    Raises BadInput if a file cannot be read.
    """
    rows = _rows(state.place(one), BEFORE)
    before = next((row for row in rows if row.checkpoint == parent.checkpoint), None)
    if before is None:
        return None
    rows = _rows(state.made(one, ""), WEEKS)
    after = next((row for row in rows if row.data == before.data), None)
    if after is None:
        return None
    found = Learned(before.metrics[KEY], after.metrics[KEY], after.counts.get("n_images"))
    if not has_interval:
        return found
    ends = _interval(state, one, before, after)
    return found if ends is None else Learned(found.before, found.after, found.images, *ends)


def _interval(state: State, one: Attempt, before: Row, after: Row) -> tuple[float, float] | None:
    """The ends of the 95 % interval of what was learned; None without ranks of the same queries."""
    from vlcpctl.evaluation.rank_files import SavedRanks  # slow to import

    sides = []
    places = (before, state.place(one), BEFORE), (after, state.made(one, ""), WEEKS)
    for row, place, name in places:
        path = ranks_file(place, name)
        if not path.is_file():
            return None
        sides += SavedRanks.open(path).read([(row.checkpoint or "", row.data or "")])
    if len(sides) != 2 or not have_same_queries(*sides):
        return None
    lost = intervals([(sides[0], sides[1])])[KEY]
    return -lost.high, -lost.low


def _rows(place: Path, name: str) -> list[Row]:
    path = rows_file(place, name)
    found = read_rows([str(path)]) if path.is_file() else []
    return [one for one in found if one.gallery == "own" and KEY in one.metrics]


def _of_learning(lines: Lines) -> Iterator[str]:
    head, state = lines.head, lines.state
    found = learned(state, lines.made, head[-1], has_interval=True)
    if found is not None and found.points < _LEARNED:
        scores = f"{found.before:.1f} before, {found.after:.1f} after"
        if found.high is not None and found.high < _LEARNED:
            yield f"the week was not learned: {scores}"
        else:
            of = f" of {found.images} images" if found.images is not None else ""
            yield f"whether the week was learned cannot be told from its test split{of}: {scores}"
    recent = range(max(1, len(head) - _FEW + 1), len(head))
    earlier = [learned(state, head[n], head[n - 1], has_interval=False) for n in recent]
    four = [one.points for one in (*earlier, found) if one is not None]
    if len(four) == _FEW and sum(four) / _FEW < _LEARNED:
        mean = sum(four) / _FEW
        yield f"nothing was learned in {_FEW} weeks: {mean:+.1f} points a week on average"


def _of_peaks(lines: Lines) -> Iterator[str]:
    """Guards that stood higher: the mean of four weeks has less noise than the best of all."""
    now = _guard_scores(lines.state, lines.made)
    scores = [_guard_scores(lines.state, one) for one in lines.head[1:]]
    errors: dict[str, float] = {}
    for one in (*lines.head[1:][-_FEW:], lines.made):
        for data, error in errors_of(one).items():
            errors[data] = max(error, errors.get(data, 0.0))
    z = critical_value(len(now), 1 / WEEKS_A_YEAR)
    for guard, score in now.items():
        runs = [
            (sum(four) / _FEW, first)
            for first, four in _runs_of_four([one.get(guard) for one in scores])
        ]
        peak, first = max(runs, default=(score, 0))
        if peak - score > max(_PEAK_DROP, z * errors.get(guard, 0.0)):
            until = first + _FEW - 1
            yield f"{guard} stood at {peak:.1f} in weeks {first} to {until}, and is at {score:.1f}"


def _runs_of_four(scores: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """The scores of four weeks in a row that all have one, with the number of the first week."""
    for first in range(len(scores) - _FEW + 1):
        four = [one for one in scores[first : first + _FEW] if one is not None]
        if len(four) == _FEW:
            yield first + 1, four


def _guard_scores(state: State, one: Attempt) -> dict[str, float]:
    """The scores of an attempt's checkpoint on the retrieval guards, by name."""
    return {row.task: row.metrics[KEY] for row in _rows(state.made(one, ""), GUARDS)}


def _of_guard_age(lines: Lines, rejected: Sequence[Attempt]) -> Iterator[str]:
    """Guards that have judged many models favour the accepted one, which they have selected."""
    ids = guard_ids(lines.state.root, lines.settings)
    if not ids:
        return
    last = len(lines.head) - 1
    first = [next((x.week for x in lines.head if one in x.measured), last) for one in ids]
    weeks = last + (lines.made.status != REJECTED) - min(first)
    chain = {one.id for one in lines.head}
    times = sum(one.week > min(first) and one.parent in chain for one in rejected)
    if weeks >= _GUARD_WEEKS or times >= _GUARD_REJECTIONS:
        yield (
            f"the guards have judged {weeks} weeks and rejected {times}, so that the accepted "
            "model is the one that they happen to favour; give a fresh guard with --guard"
        )
