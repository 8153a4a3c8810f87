"""Warnings about a week, from fabricated rows and ranks of its state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.eval_rows import current, row, write_rows
from support.rank_files import write_ranks

from vlcpctl.core.errors import UsageError
from vlcpctl.production.attempt import Judgement
from vlcpctl.production.guards import refuse_small, sights
from vlcpctl.production.layout import Layout
from vlcpctl.production.ledger import Action, record
from vlcpctl.production.lines import BEFORE, GUARDS, WEEKS, ranks_file, rows_file
from vlcpctl.production.remarks import remarks
from vlcpctl.production.settings import NEW, Guard, Settings
from vlcpctl.production.state import Start, State, Week
from vlcpctl.testing.tiny_stream import make_task

GOLDEN = Guard("golden", "id of golden", "golden")
SETTINGS = Settings(run="prod", guards=(GOLDEN,), **NEW)
ACCEPTED = Judgement(accepted=True, gates=(), undefined="", verdicts=())
REJECTED = Judgement(accepted=False, gates=(), undefined="", verdicts=())


class Stream:
    """A state of weeks whose rows say what was learned, and how a guard stood."""

    def __init__(self, root: Path) -> None:
        self.place = Layout(root)
        self.weeks = 0

    def week(self, before: float, after: float, guard: float = 80.0, *, images: int = 500) -> None:
        """Add a week; the last one that is added is in `pending/`."""
        self.weeks += 1
        number, task = self.weeks, f"{self.weeks - 1:02d}-week"
        directory = self.place.root / str(number)
        (directory / "rows").mkdir(parents=True)
        (directory / "ranks").mkdir()
        for name, score, at in ((BEFORE, before, number - 1), (WEEKS, after, number)):
            of = {"task": task, "step": at, "task_step": number - 1, "checkpoint": f"c{at}"}
            (one,) = current([row(**of)])
            right = round(images * score / 100)
            names = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
            metrics = dict.fromkeys([*names, "rm"], 100 * right / images)
            one |= {"metrics": metrics, "n_images": images}
            write_rows(rows_file(directory, name), [one])
            ranks = {f"{key:05d}": [1 if key < right else 20] for key in range(images)}
            of |= {"data": one["data"]}
            write_ranks(ranks_file(directory, name), {"i2t": ranks, "t2i": ranks}, **of)
        golden = row(task="golden", task_step=None, step=number, metrics={"rm": guard})
        write_rows(rows_file(directory, GUARDS), [golden])

    def reject(self, week: int, data: str, checkpoint: str) -> None:
        """Add a rejection to the ledger."""
        action = Action(action="rejected", week=week, data=data, checkpoint=checkpoint)
        record(self.place, [action])

    def remarks(self, judged: Judgement = ACCEPTED) -> list[str]:
        """The warnings about the last week."""
        for number in range(1, self.weeks + 1):
            target = self.place.week(number) if number < self.weeks else self.place.pending
            target.parent.mkdir(exist_ok=True)
            (self.place.root / str(number)).rename(target)
        accepted = [
            Week(
                number=number,
                data=f"d{number}",
                sources=(),
                pairs=0,
                checkpoint=f"c{number}",
                verdicts=(),
            )
            for number in range(1, self.weeks)
        ]
        start = Start(
            given="",
            source="",
            buffer_from=(),
            settings=SETTINGS,
            ready=True,
            checkpoint="c0",
            measured=(GOLDEN.content,),
        )
        state = State(start=start, settings=SETTINGS, weeks=tuple(accepted))
        return list(remarks(self.place, state, judged))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_a_week_that_learned_has_no_warning(stream: Stream) -> None:
    stream.week(9.0, 40.0)
    assert stream.remarks() == []


def test_a_week_that_learned_nothing_is_named(stream: Stream) -> None:
    stream.week(9.2, 9.4)
    assert stream.remarks() == ["the week was not learned: 9.2 before, 9.4 after"]


def test_a_week_that_learned_more_than_a_point_is_not(stream: Stream) -> None:
    stream.week(9.2, 10.3)
    assert stream.remarks() == []


def test_a_few_images_cannot_tell(stream: Stream) -> None:
    stream.week(12.5, 12.5, images=16)
    (found,) = stream.remarks()
    assert found == (
        "whether the week was learned cannot be told from its test split of 16 images: "
        "12.5 before, 12.5 after"
    )


def test_nothing_learned_in_twenty_weeks_is_said_from_the_fourth_on(tmp_path: Path) -> None:
    for weeks, is_said in ((3, False), (4, True), (20, True)):
        stream = Stream(tmp_path / str(weeks))
        for _ in range(weeks):
            stream.week(10.0, 10.2)
        found = "nothing was learned in 4 weeks: +0.2 points a week on average"
        assert (found in stream.remarks()) == is_said


def _scores(stream: Stream, guard: Sequence[float]) -> list[str]:
    for score in guard:
        stream.week(10.0, 40.0, score)
    return stream.remarks()


def test_a_guard_that_stood_higher_for_four_weeks_is_named(stream: Stream) -> None:
    found = _scores(stream, [80, 84, 88, 88, 88, 88, 87, 84.6])
    assert found == ["golden stood at 88.0 in weeks 3 to 6, and is at 84.6"]


def test_a_single_high_week_is_no_peak(stream: Stream) -> None:
    assert _scores(stream, [80, 80, 88, 80, 80, 80]) == []


def test_a_peak_within_chance_is_not_named(stream: Stream) -> None:
    for score in (88, 88, 88, 88, 84):
        stream.week(10.0, 40.0, score)
    noisy = {"data": "golden", "se": 2.1}  # z is 2.07 for one guard
    judged = Judgement(accepted=True, gates=(), undefined="", verdicts=(noisy,))
    assert stream.remarks(judged) == []


def test_three_rejected_weeks_in_a_row_are_a_drift(stream: Stream) -> None:
    stream.week(10.0, 40.0)
    for number in range(3):
        stream.reject(1, f"d{number}", f"r{number}")
    (found,) = stream.remarks(REJECTED)
    assert found.startswith("3 weeks in a row are rejected: not one bad week, but data or settings")


def test_one_week_that_is_rejected_three_times_is_one_bad_week(stream: Stream) -> None:
    stream.week(10.0, 40.0)
    for number in range(3):
        stream.reject(1, "d", f"r{number}")
    assert stream.remarks(REJECTED) == []


def test_guards_are_no_longer_fresh_after_half_a_year(tmp_path: Path) -> None:
    for weeks, is_said in ((25, False), (26, True)):
        found = _scores(Stream(tmp_path / str(weeks)), [80.0] * weeks)
        assert [one for one in found if "give a fresh guard with --guard" in one] == found
        assert bool(found) == is_said


@pytest.mark.parametrize(("images", "sees"), [(50, 6.8), (200, 3.4), (321, 2.7), (1000, 2.4)])
def test_what_a_guard_shows_follows_from_its_size(images: int, sees: float, tmp_path: Path) -> None:
    make_task(tmp_path / "golden", splits={"test": images})
    (found,) = sights(tmp_path, SETTINGS, {})
    assert (found.images, round(found.sees, 1), found.bound) == (images, sees, 2.0)
    assert f"golden, {images} images: a true loss of {sees} points" in found.sentence()
    (measured,) = sights(tmp_path, SETTINGS, {"golden": 0.1})
    assert measured.sees == pytest.approx(2.08, abs=0.01)  # the bound, and 0.84 se


def test_a_guard_of_five_images_is_refused(tmp_path: Path) -> None:
    make_task(tmp_path / "golden", splits={"test": 5})
    with pytest.raises(UsageError, match=r"golden has 5 test images, on which chance hides .*50"):
        refuse_small(tmp_path, [GOLDEN])


def test_without_a_bound_on_guards_nothing_is_said_of_them(tmp_path: Path) -> None:
    settings = Settings(run="prod", guards=(GOLDEN,), fail_if=("bwt_gem:lt:-2",))
    assert sights(tmp_path, settings, {}) == []
