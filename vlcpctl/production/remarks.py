"""What is said about a week beside its conditions: warnings, which never reject one.

The bounds were chosen by simulating a year of weeks: docs/results/decisions.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.files.rows import Row, read_rows
from vlcpctl.metrics.chance import WEEKS_A_YEAR, critical_value
from vlcpctl.production.attempt import Judgement
from vlcpctl.production.layout import Layout
from vlcpctl.production.ledger import Rejection, rejections, require_ledger
from vlcpctl.production.lines import BEFORE, GUARDS, WEEKS, ranks_file, rows_file
from vlcpctl.production.state import State, guard_ids
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


def remarks(place: Layout, state: State, judged: Judgement) -> tuple[str, ...]:
    """The warnings about the week in `pending/`; the ledger has its rejection, `state` has not.

    Raises BadInput if its rows or ranks, the rows of an accepted week, or the ledger cannot be
    read.
    """
    found = [*_of_learning(place, state), *_of_peaks(place, state, judged)]
    rejected = rejections(require_ledger(place))
    found += _of_rejections(state, judged, rejected)
    return (*found, *_of_guard_age(state, judged, rejected))


def learned(week: Path, parent: str, *, has_interval: bool = False) -> Learned | None:
    """What a week learned, from its rows and, for the interval, its ranks; None if not evaluated.

    `parent` is the content id of the checkpoint that it continues. Raises BadInput if a file cannot
    be read.
    """
    before = next((one for one in _rows(week, BEFORE) if one.checkpoint == parent), None)
    if before is None:
        return None
    after = next((one for one in _rows(week, WEEKS) if one.data == before.data), None)
    if after is None:
        return None
    found = Learned(before.metrics[KEY], after.metrics[KEY], after.counts.get("n_images"))
    if not has_interval:
        return found
    ends = _interval(week, before, after)
    return found if ends is None else Learned(found.before, found.after, found.images, *ends)


def _interval(week: Path, before: Row, after: Row) -> tuple[float, float] | None:
    """The ends of the 95 % interval of what was learned; None without ranks of the same queries."""
    from vlcpctl.evaluation.rank_files import SavedRanks  # slow to import

    sides = []
    for row, name in ((before, BEFORE), (after, WEEKS)):
        path = ranks_file(week, name)
        if not path.is_file():
            return None
        sides += SavedRanks.open(path).read([(row.checkpoint or "", row.data or "")])
    if len(sides) != 2 or not have_same_queries(*sides):
        return None
    lost = intervals([(sides[0], sides[1])])[KEY]
    return -lost.high, -lost.low


def _rows(week: Path, name: str) -> list[Row]:
    path = rows_file(week, name)
    found = read_rows([str(path)]) if path.is_file() else []
    return [one for one in found if one.gallery == "own" and KEY in one.metrics]


def _of_learning(place: Layout, state: State) -> Iterator[str]:
    found = learned(place.pending, state.checkpoint, has_interval=True)
    if found is not None and found.points < _LEARNED:
        scores = f"{found.before:.1f} before, {found.after:.1f} after"
        if found.high is not None and found.high < _LEARNED:
            yield f"the week was not learned: {scores}"
        else:
            of = f" of {found.images} images" if found.images is not None else ""
            yield f"whether the week was learned cannot be told from its test split{of}: {scores}"
    parents = [state.start.checkpoint, *(week.checkpoint for week in state.weeks)]
    numbers = range(max(1, state.last - _FEW + 2), state.last + 1)
    earlier = [learned(place.week(number), parents[number - 1]) for number in numbers]
    four = [one.points for one in (*earlier, found) if one is not None]
    if len(four) == _FEW and sum(four) / _FEW < _LEARNED:
        mean = sum(four) / _FEW
        yield f"nothing was learned in {_FEW} weeks: {mean:+.1f} points a week on average"


def _of_peaks(place: Layout, state: State, judged: Judgement) -> Iterator[str]:
    """Guards that stood higher: the mean of four weeks has less noise than the best of all."""
    now = _guard_scores(place.pending)
    scores = [_guard_scores(place.week(number)) for number in range(1, state.last + 1)]
    errors = _errors(state, judged)
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


def _guard_scores(week: Path) -> dict[str, float]:
    """The scores of a week's checkpoint on the retrieval guards, by name."""
    return {row.task: row.metrics[KEY] for row in _rows(week, GUARDS)}


def _errors(state: State, judged: Judgement) -> dict[str, float]:
    """The largest standard error of a loss on each guard, in this week and the four before."""
    recent = [one for week in state.weeks[-_FEW:] for one in week.verdicts]
    return errors_of([*recent, *judged.verdicts])


def errors_of(verdicts: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """The largest standard error that verdicts have of a loss on each data set."""
    found: dict[str, float] = {}
    for one in verdicts:
        error, data = one.get("se"), one.get("data")
        if isinstance(error, int | float) and isinstance(data, str):
            found[data] = max(found.get(data, 0.0), float(error))
    return found


def _of_rejections(state: State, judged: Judgement, rejected: Sequence[Rejection]) -> Iterator[str]:
    in_a_row = {one.data for one in rejected if one.number > state.last}
    if not judged.accepted and len(in_a_row) >= _IN_A_ROW:
        yield (
            f"{len(in_a_row)} weeks in a row are rejected: not one bad week, but data or settings "
            "that drift; the accepted model has truly lost more than its guards show"
        )


def _of_guard_age(state: State, judged: Judgement, rejected: Sequence[Rejection]) -> Iterator[str]:
    """Guards that have judged many models favour the accepted one, which they have selected."""
    ids = guard_ids(state.settings)
    if not ids:
        return
    first = [0 if one in state.start.measured else _first_week(state, one) for one in ids]
    weeks = state.last + judged.accepted - min(first)
    times = sum(one.number > min(first) for one in rejected)
    if weeks >= _GUARD_WEEKS or times >= _GUARD_REJECTIONS:
        yield (
            f"the guards have judged {weeks} weeks and rejected {times}, so that the accepted "
            "model is the one that they happen to favour; give a fresh guard with --guard"
        )


def _first_week(state: State, guard: str) -> int:
    return next((week.number for week in state.weeks if guard in week.measured), state.last)
