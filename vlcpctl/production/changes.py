"""What changed with a week: what it learned, and warnings about it, which never reject one.

The bounds were chosen by simulating a year of weeks: docs/results/decisions.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vlcpctl.core.errors import some_names
from vlcpctl.files.rows import Row, read_rows
from vlcpctl.metrics.chance import WEEKS_A_YEAR, critical_value
from vlcpctl.production.guards import errors_of, galleries_of
from vlcpctl.production.lines import BEFORE, GUARDS, WEEKS, Lines, ranks_file, rows_file
from vlcpctl.production.settings import MATCH, Settings
from vlcpctl.production.state import REJECTED, Attempt, Learned, Match
from vlcpctl.report.gates import Verdict, is_beyond
from vlcpctl.report.intervals import have_same_queries, intervals

if TYPE_CHECKING:
    from vlcpctl.evaluation.rank_files import GalleryRanks

KEY = "rm"
_BY_CHANCE = 50.0  # percent of a match
_LEARNED = 1.0  # points below which a week was hardly learned
_FEW = 4  # weeks in a row whose mean counts
_PEAK_DROP = 3.0  # points
_IN_A_ROW = 3  # rejections


def warnings_of(lines: Lines) -> Iterator[str]:
    """The warnings about a judged attempt. Raises BadInput if rows or ranks cannot be read."""
    yield from _of_learning(lines)
    yield from _of_peaks(lines)
    every = [*lines.state.attempts.values(), lines.made]
    rejected = [one for one in every if one.status == REJECTED]
    in_a_row = {one.data for one in rejected if one.parent == lines.made.parent}
    if lines.made.status == REJECTED and len(in_a_row) >= _IN_A_ROW:
        yield (
            f"{len(in_a_row)} weeks in a row are rejected: not one bad week, but data or settings "
            "that drift; the accepted model has truly lost more than its guards show"
        )


def of_emptied(lines: Lines) -> Iterator[str]:
    """That weeks have no test pairs any more. Raises BadInput if a task cannot be read."""
    if lines.emptied:
        weeks = some_names([f"week {one}" for one in lines.emptied])
        yield (
            f"'vlcpctl forget' has removed all test pairs of {weeks}: metrics over all weeks, such "
            "as bwt_gem, are those of the other weeks"
        )


def match_of(lines: Lines) -> Match | None:
    """How well the captions of a week's test pairs match their images, by the accepted model.

    None if it was not evaluated. Raises BadInput if a file cannot be read.
    """
    before = _before(lines)
    ranks = before and _ranks(lines.state.place(lines.made), BEFORE, before)
    return matched(ranks) if ranks else None


def matched(ranks: GalleryRanks) -> Match | None:
    """The match that the ranks of Q queries on N images show; None of fewer than two."""
    texts, images = ranks.ways["t2i"], ranks.ways["i2t"]
    # Of several captions of an image, only the best has a rank.
    queries, gallery = (texts, images) if (texts.captions > 0).any() else (images, texts)
    wrong = len(gallery.rank) - 1
    above_Q = 1 - (queries.rank - 1) / max(wrong, 1)
    place_Q = queries.keys.dictionary_encode().indices.to_numpy()
    above_N = 100 * np.bincount(place_Q, above_Q) / np.bincount(place_Q)
    if wrong < 1 or len(above_N) < 2:
        return None
    error = float(above_N.std(ddof=1)) / math.sqrt(len(above_N))
    return Match(float(above_N.mean()), error, len(above_N))


def doubts(match: Match | None, head: Sequence[Attempt]) -> Iterator[str]:
    """That captions do not match their images, if those of earlier weeks clearly did."""
    earlier = [one.match for one in head[1:][-_FEW:] if one.match is not None]
    is_known = bool(earlier) and all(one.low > _BY_CHANCE for one in earlier)
    if match is not None and match.low <= _BY_CHANCE and is_known:
        least = min(one.value for one in earlier)
        yield (
            "the captions do not match their images as far as the model can tell: "
            f"{match}, in earlier weeks at least {least:.1f} %"
        )


def judge_match(match: Match | None, settings: Settings) -> Iterator[Verdict]:
    """The verdicts of the conditions on the match; none if it is not known."""
    for gate in settings.match_gates:
        if match is None:
            return
        holds = is_beyond(match.value, gate.comparison, gate.bound)
        yield Verdict(
            condition=gate.text,
            run=str(settings.own("run")),
            metric=MATCH,
            value=match.value,
            holds=holds,
            undefined=None,
            bound=gate.bound,
            passes=not holds,
            samples=match.images,
            se=match.error,
            is_clear=holds,  # another training has the same match
        )


def learned(lines: Lines) -> Learned | None:
    """What a week learned, with its interval if ranks have it; None if it was not evaluated.

    Raises BadInput if a file cannot be read.
    """
    before, out = _before(lines), lines.state.made(lines.made, "")
    after = next((row for row in _rows(out, WEEKS) if before and row.data == before.data), None)
    if before is None or after is None:
        return None
    found = before.metrics[KEY], after.metrics[KEY], after.counts.get("n_images")
    sides = _ranks(lines.state.place(lines.made), BEFORE, before), _ranks(out, WEEKS, after)
    if sides[0] is None or sides[1] is None or not have_same_queries(sides[0], sides[1]):
        return Learned(*found)
    lost = intervals([(sides[0], sides[1])])[KEY]
    return Learned(*found, -lost.high, -lost.low)


def _before(lines: Lines) -> Row | None:
    """The row of the accepted model on the test of the week."""
    rows = _rows(lines.state.place(lines.made), BEFORE)
    return next((row for row in rows if row.checkpoint == lines.head[-1].checkpoint), None)


def _ranks(place: Path, name: str, row: Row) -> GalleryRanks | None:
    from vlcpctl.evaluation.rank_files import SavedRanks  # slow to import

    path = ranks_file(place, name)
    wanted = [(row.checkpoint or "", row.data or "")]
    found = SavedRanks.open(path).read(wanted) if path.is_file() else []
    return found[0] if len(found) == 1 else None


def _rows(place: Path, name: str) -> list[Row]:
    path = rows_file(place, name)
    found = read_rows([str(path)]) if path.is_file() else []
    return [one for one in found if one.gallery == "own" and KEY in one.metrics]


def _of_learning(lines: Lines) -> Iterator[str]:
    found = lines.made.learned
    if found is not None and found.points < _LEARNED:
        scores = f"{found.before:.1f} before, {found.after:.1f} after"
        if found.high is not None and found.high < _LEARNED:
            yield f"the week was not learned: {scores}"
        else:
            of = f" of {found.images} images" if found.images is not None else ""
            yield f"whether the week was learned cannot be told from its test split{of}: {scores}"
    last = [one.learned for one in lines.head[1:][1 - _FEW :]]
    four = [one.points for one in (*last, found) if one is not None]
    if len(four) == _FEW and sum(four) / _FEW < _LEARNED:
        mean = sum(four) / _FEW
        yield f"nothing was learned in {_FEW} weeks: {mean:+.1f} points a week on average"


def _of_peaks(lines: Lines) -> Iterator[str]:
    """Guards that stood higher: the mean of four weeks has less noise than the best of all."""
    state, own = lines.state, galleries_of(lines.made)
    weeks = [one if galleries_of(one) == own else None for one in lines.head[1:]]
    *before, now = (
        {x.task: x.metrics[KEY] for x in _rows(state.made(one, ""), GUARDS)} if one else {}
        for one in (*weeks, lines.made)
    )
    errors = [errors_of(one) for one in (*lines.head[1:][-_FEW:], lines.made)]
    z = critical_value(len(now), 1 / WEEKS_A_YEAR)
    fours = [before[at : at + _FEW] for at in range(len(before) - _FEW + 1)]
    for guard, score in now.items():
        means = [
            (sum(one[guard] for one in four) / _FEW, first)
            for first, four in enumerate(fours, 1)
            if all(guard in one for one in four)
        ]
        peak, first = max(means, default=(score, 0))
        error = max(one.get(guard, 0.0) for one in errors)
        if peak - score > max(_PEAK_DROP, z * error):
            until = first + _FEW - 1
            yield f"{guard} stood at {peak:.1f} in weeks {first} to {until}, and is at {score:.1f}"
