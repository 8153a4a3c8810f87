"""What is said of a week beside its conditions: warnings, and what a guard can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, row, write_rows
from support.rank_files import write_ranks

from vlcpctl.commands.update import Update
from vlcpctl.evaluation.rank_files import SavedRanks
from vlcpctl.production.changes import doubts, judge_match, learned, matched, warnings_of
from vlcpctl.production.guards import guard_ids, guard_patterns, say_sights
from vlcpctl.production.lines import BEFORE, GUARDS, WEEKS, Lines, ranks_file, rows_file
from vlcpctl.production.settings import NEW, Settings, with_given
from vlcpctl.production.state import PASSED, REJECTED, Attempt, Match, State
from vlcpctl.testing.tiny_stream import make_task

REQUEST = Update("data", state=Path("prod"))


def settings(guards: Sequence[str] = ("golden",), **more: Any) -> Settings:
    return Settings(with_given(NEW, {"update": {"guard": [*guards]}, **more}))


class Stream:
    """A state of weeks whose rows say what was learned, and how a guard stood."""

    def __init__(self, root: Path) -> None:
        make_task(root / "golden", splits={"train": 1, "test": 60})
        self.state, self.how = State(root), settings()
        ids = tuple(guard_ids(root, self.how))
        start = self.attempt(0, measured=ids)
        self.state.attempts[start.id], self.state.counting = start, (start.id,)

    def attempt(self, week: int, **more: Any) -> Attempt:
        number = len(self.state.attempts) + 1
        how: dict[str, Any] = {"data": f"d{week}", "parent": week, "checkpoint": f"c{week}"}
        how |= {"settings": self.how.sections, "names": (), "status": PASSED, "key": str(number)}
        return Attempt(id=number, week=week, **how | more)

    def week(self, before: float, after: float, guard: float = 80.0, *, images: int = 500) -> None:
        """Add an accepted week."""
        made = self.attempt(len(self.state.counting))
        number, task = made.week, f"{made.week - 1:02d}-week"
        places = (
            (BEFORE, before, number - 1, self.state.place(made)),
            (
                *(WEEKS, after, number),
                self.state.made(made, ""),
            ),
        )
        for name, score, at, place in places:
            (place / "rows").mkdir(parents=True)
            (place / "ranks").mkdir()
            of = {"task": task, "step": at, "task_step": number - 1, "checkpoint": f"c{at}"}
            (one,) = current([row(**of)])
            right = round(images * score / 100)
            names = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
            metrics = dict.fromkeys([*names, "rm"], 100 * right / images)
            one |= {"metrics": metrics, "n_images": images}
            write_rows(rows_file(place, name), [one])
            ranks = {f"{key:05d}": [1 if key < right else 20] for key in range(images)}
            of |= {"data": one["data"]}
            write_ranks(ranks_file(place, name), {"i2t": ranks, "t2i": ranks}, **of)
        golden = row(task="golden", task_step=None, step=number, metrics={"rm": guard})
        write_rows(rows_file(self.state.made(made, ""), GUARDS), [golden])
        head = self.state.head()
        made = replace(
            made, learned=learned(Lines(self.state, head, made, self.how, REQUEST, None))
        )
        self.state.attempts[made.id] = made
        self.state.counting = (*self.state.counting, made.id)

    def warnings(self, **more: Any) -> list[str]:
        """The warnings about the last week, as it is judged."""
        *head, made = self.state.head()
        lines = Lines(self.state, head, replace(made, **more), self.how, REQUEST, None)
        return list(warnings_of(lines))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "images", "said"),
    [
        (9.0, 40.0, 500, []),
        (9.2, 9.4, 500, ["was not learned: 9.2 before, 9.4 after"]),
        (9.2, 10.3, 500, []),
        (12.5, 12.5, 16, ["cannot be told from its test split of 16 images"]),
    ],
)
def test_a_week_that_learned_nothing_is_named(
    stream: Stream, before: float, after: float, images: int, said: list[str]
) -> None:
    stream.week(before, after, images=images)
    found = stream.warnings()
    assert len(found) == len(said)
    assert all(word in one for word, one in zip(said, found, strict=True))


def test_nothing_learned_in_four_weeks_is_said(tmp_path: Path) -> None:
    for weeks in (3, 4, 6):
        stream = Stream(tmp_path / str(weeks))
        for _ in range(weeks):
            stream.week(10.0, 10.2)
        found = "nothing was learned in 4 weeks: +0.2 points a week on average"
        assert (found in stream.warnings()) == (weeks >= 4)


@pytest.mark.parametrize(
    ("i2t", "t2i", "value", "error"),
    [
        # Of three other captions 3, 2, 0 and 3 score less: 100, 66.7, 0, 100 %.
        ([1, 2, 4, 1], [[1], [1], [1], [1]], 200 / 3, 47.14045 / 2),
        # Two captions of the first image: of two other images 2 and 0 score less, then 1 and 2.
        ([1, 1, 1], [[1, 3], [2], [1]], 200 / 3, 28.86751 / 3**0.5),
        ([1], [[1]], None, None),
    ],
)
def test_the_match_of_a_week_is_the_share_of_wrong_captions_that_score_less(
    i2t: list[int], t2i: list[list[int]], value: float | None, error: float, tmp_path: Path
) -> None:
    ways = {"i2t": {str(k): [one] for k, one in enumerate(i2t)}, "t2i": dict(enumerate(t2i))}
    ways["t2i"] = {str(k): found for k, found in ways["t2i"].items()}
    path = write_ranks(tmp_path / "ranks.parquet", ways)
    (ranks,) = SavedRanks.open(path).read([("c0", "d")])
    found = matched(ranks)
    assert (found and (found.value, found.error)) == (value and pytest.approx((value, error)))


@pytest.mark.parametrize(
    ("earlier", "now", "is_said"),
    [
        ([62, 58, 66, 64], 47, True),
        ([62, 58, 66, 64], 53, True),  # 49.1 to 56.9
        ([62, 58, 66, 64], 55, False),
        ([52, 51, 53, 52], 47, False),  # the model cannot judge such weeks
        ([52, 62, 58, 66, 64], 47, True),  # the last four count
        ([], 47, False),
    ],
)
def test_captions_that_do_not_match_are_said(
    stream: Stream, earlier: list[float], now: float, is_said: bool
) -> None:
    weeks = [stream.attempt(k, match=Match(one, 2.0, 500)) for k, one in enumerate([50, *earlier])]
    assert len([*doubts(Match(now, 2.0, 500), weeks)]) == is_said


@pytest.mark.parametrize(("value", "holds"), [(54.9, True), (55.0, False)])
def test_a_condition_on_the_match_rejects(value: float, holds: bool) -> None:
    how = settings(**{"forgetting-report": {"fail-if": ["worst_drop:gt:2", "week_match:lt:55"]}})
    how.check()
    assert how.gates == ["worst_drop:gt:2"]
    (found,) = judge_match(Match(value, 2.0, 500), how)
    assert (found.holds, found.is_clear, found.passes) == (holds, holds, not holds)


@pytest.mark.parametrize(
    ("guard", "error", "said"),
    [
        ([80, 84, 88, 88, 88, 88, 87, 84.6], 0.0, ["88.0 in weeks 3 to 6, and is at 84.6"]),
        ([80, 80, 88, 80, 80, 80], 0.0, []),
        ([88, 88, 88, 88, 84], 2.1, []),  # z is 2.07 for one guard
    ],
)
def test_a_guard_that_stood_higher_is_named(
    stream: Stream, guard: list[float], error: float, said: list[str]
) -> None:
    for score in guard:
        stream.week(10.0, 40.0, score)
    found = stream.warnings(verdicts=({"data": "golden", "se": error},))
    assert len(found) == len(said)
    assert all(word in one for word, one in zip(said, found, strict=True))


@pytest.mark.parametrize(("data", "is_said"), [(["a", "b"], True), (["a", "a"], False)])
def test_three_rejected_weeks_in_a_row_are_a_drift(
    stream: Stream, data: list[str], is_said: bool
) -> None:
    stream.week(10.0, 40.0)
    for one in data:
        made = stream.attempt(1, data=one, status=REJECTED, parent=1)
        stream.state.attempts[made.id] = made
    found = stream.warnings(status=REJECTED)
    assert [one.startswith("3 weeks in a row are rejected") for one in found] == [True] * is_said


@pytest.mark.parametrize(
    ("images", "sees"), [(50, "5.1 to 6.9"), (200, "2.7 to 3.4"), (1000, "2.3 to 2.4")]
)
def test_what_a_guard_shows_follows_from_its_size(
    images: int, sees: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_task(tmp_path / "golden", splits={"test": images})
    say_sights(tmp_path, settings(), None)
    assert f"golden, {images} images: a true loss of {sees} points" in capfd.readouterr().err
    say_sights(tmp_path, settings(**{"forgetting-report": {"fail-if": ["bwt_gem:lt:-2"]}}), None)
    assert capfd.readouterr().err == ""


def test_patterns_are_the_names_that_rows_have(tmp_path: Path) -> None:
    make_task(tmp_path / "golden", splits={"test": 3})
    (tmp_path / "birds").mkdir()
    how = settings(update={"guard": ["golden"], "guard-classes": ["wds_vtab-flowers", "birds"]})
    found = guard_patterns(tmp_path, how)
    assert found[1:] == ["flowers", "birds", "average of 2*"]
