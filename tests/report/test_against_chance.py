"""--fail-if on losses: above the bound, and above what chance shows of so few samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.eval_rows import read_back
from support.weekly_rows import Weeks

from vlcpctl.core.errors import GateFailed
from vlcpctl.metrics.chance import WEEKS_A_YEAR, critical_value
from vlcpctl.report.gates import Verdict, enforce, verdicts_table
from vlcpctl.report.report import Files, ReportRequest, build

A_YEAR = 1 / WEEKS_A_YEAR
EVERY = ("worst_drop:gt:2", "step_drop:gt:2", "worst_week:gt:5", "bwt_gem.rm:lt:-2")


def judged(weeks: Weeks, *gates: str, has_ranks: bool = True) -> list[Verdict]:
    request = ReportRequest(
        runs=("ctp",),
        fail_if=gates,
        undefined="pass",
        false_alarms=A_YEAR,
    )
    files = Files(weeks.ranks if has_ranks else ())
    return list(build(read_back(weeks.path / "r", weeks.rows), request, files).verdicts)


def guarded(path: Path, scores: Sequence[range], of: int) -> Weeks:
    """A guard after the start and each week, and one large task a week that nothing is lost of."""
    weeks = Weeks(path)
    weeks.guard(scores, of)
    steps = len(scores) - 1
    weeks.stream({task: [range(30)] * (steps - task) for task in range(steps)}, 60)
    return weeks


def test_a_loss_above_the_bound_and_above_chance_fails(tmp_path: Path) -> None:
    weeks = guarded(tmp_path, [range(800), range(760)], 1000)  # 40 of 1,000 samples are lost
    worst, step, week, mean = judged(weeks, *EVERY)
    assert (worst.value, worst.outcome, worst.samples) == (4.0, "fails", 1000)
    assert (worst.against, step.against) == ("baseline", "step before")
    assert worst.se == pytest.approx(100 * (0.04 * 0.96 / 1000) ** 0.5, rel=0.05)
    assert worst.comparisons == 2  # one guard, two earlier models
    assert worst.chance == pytest.approx(critical_value(2, A_YEAR) * worst.se)
    assert worst.sees == pytest.approx(2 + 0.84 * worst.se, abs=0.01)
    assert (worst.is_resolved, worst.is_clear) == (False, True)
    assert step.holds
    assert (week.outcome, mean.outcome) == ("not defined yet (1 task)",) * 2
    with pytest.raises(GateFailed, match=r"4\.0000 \(95 % .* > 2, and chance alone reaches 1\."):
        enforce([worst])


def test_a_loss_that_chance_shows_as_well_passes_unresolved(tmp_path: Path) -> None:
    weeks = guarded(tmp_path, [range(40), [*range(38)]], 50)  # 2 of 50
    (worst,) = judged(weeks, "worst_drop:gt:2")
    assert (worst.value, worst.outcome) == (4.0, "passes, not resolved")
    assert (worst.is_resolved, worst.is_clear) == (False, False)
    assert worst.chance is not None
    assert worst.chance > 4
    assert "= 4.0000 (95 % -2.10 to 10.10)" in worst.sentence()
    assert "> 2, but chance alone reaches" in worst.sentence()
    enforce([worst])
    (plain,) = judged(weeks, "worst_drop:gt:2", has_ranks=False)
    assert (plain.outcome, plain.chance) == ("fails", None)


def test_a_loss_within_the_bound_says_nothing_of_chance(tmp_path: Path) -> None:
    (worst,) = judged(guarded(tmp_path, [range(800), range(799)], 1000), "worst_drop:gt:2")
    assert (worst.outcome, worst.is_resolved) == ("passes", True)
    assert worst.sentence().endswith("> 2")


def test_a_loss_whose_interval_is_within_the_bound_is_resolved(tmp_path: Path) -> None:
    weeks = guarded(tmp_path, [range(800), range(798)], 1000)
    (worst,) = judged(weeks, "worst_drop:gt:2")
    assert (worst.outcome, worst.is_resolved, worst.is_clear) == ("passes", True, False)


def test_conditions_on_levels_and_gains_stay_plain(tmp_path: Path) -> None:
    weeks = guarded(tmp_path, [range(40), range(38)], 50)
    for gate, value in (("drop_low:gt:-50", -2.1), ("rm@data=golden:lt:77", 76.0)):
        (found,) = judged(weeks, gate)
        assert found.value == pytest.approx(value, abs=0.1)
        assert (found.holds, found.chance, found.is_resolved) == (True, None, None)
    (found,) = judged(weeks, "drop:lt:5")
    assert (found.holds, found.chance) == (True, None)


def test_what_a_guard_gained_and_lost_again_is_a_loss_since_the_step_before(tmp_path: Path) -> None:
    weeks = guarded(tmp_path, [range(800), range(880), range(790)], 1000)
    worst, step = judged(weeks, "worst_drop:gt:2", "step_drop:gt:2")
    assert (worst.value, worst.holds) == (1.0, False)
    assert (step.value, step.holds, step.data) == (9.0, True, "golden")
    assert "golden since the step before = 9.0000" in step.sentence()


def test_of_several_guards_the_one_that_lost_beyond_chance_is_named(tmp_path: Path) -> None:
    weeks = guarded(tmp_path, [range(30), range(27)], 50)  # 6 points, but few samples
    weeks.guard([range(800), range(760)], 1000, "large")  # 4 points
    (worst,) = judged(weeks, "worst_drop:gt:2")
    assert (worst.data, worst.value, worst.holds, worst.comparisons) == ("large", 4.0, True, 2)
    weeks.files.clear()
    (plain,) = judged(weeks, "worst_drop:gt:2", has_ranks=False)
    assert (plain.data, plain.value) == ("golden", 6.0)


def test_an_earlier_week_that_collapses_is_found_although_the_mean_hides_it(tmp_path: Path) -> None:
    weeks = Weeks(tmp_path)
    for task in range(20):
        kept = [range(30)] * (19 - task)
        weeks.stream({task: [range(30), *kept]}, 100)
    last = next(n for n, one in enumerate(weeks.rows) if (one["task_step"], one["step"]) == (3, 19))
    del weeks.rows[last], weeks.files[last]
    weeks.add("03-week", 19, range(5), 100, 3)
    week, mean = judged(weeks, "worst_week:gt:5", "bwt_gem.rm:lt:-2")
    assert (week.data, week.value, week.outcome) == ("03-week", 25.0, "fails")
    assert week.comparisons == 2 * 19
    assert (mean.value, mean.outcome) == (pytest.approx(-25 / 19), "passes")
    assert mean.samples == 1900


def test_weeks_of_few_images_are_judged_together(tmp_path: Path) -> None:
    weeks = Weeks(tmp_path)
    weeks.stream({task: [range(10)] * (3 - task) for task in range(2)}, 16)
    weeks.add("02-week", 2, range(10), 16, 2)
    week, mean = judged(weeks, "worst_week:gt:5", "bwt_gem.rm:lt:-2")
    assert (week.value, week.passes) == (None, True)
    assert week.outcome == "not judged (fewer than 50 test images)"
    assert "no earlier task has 50 test images; bwt_gem judges small ones" in week.sentence()
    assert (mean.value, mean.samples, mean.passes) == (0.0, 32, True)


def test_the_mean_loss_of_earlier_weeks_is_judged_against_chance(tmp_path: Path) -> None:
    weeks = Weeks(tmp_path)
    weeks.stream({0: [range(10), range(9)]}, 16)  # one of 16 images: 6.25 points
    weeks.add("01-week", 1, range(10), 16, 1)
    (mean,) = judged(weeks, "bwt_gem:lt:-2")
    assert (mean.value, mean.outcome) == (-6.25, "passes, not resolved")
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < -6.25 < mean.high
    assert mean.chance == pytest.approx(critical_value(1, A_YEAR) * 100 * (15 / 16**3) ** 0.5, 0.05)
    (plain,) = judged(weeks, "bwt_gem:lt:-2", has_ranks=False)
    assert plain.outcome == "fails"


def test_the_table_shows_the_interval_and_what_chance_reaches(tmp_path: Path) -> None:
    weeks = guarded(tmp_path, [range(40), range(38)], 50)
    table = verdicts_table(judged(weeks, *EVERY))
    assert [one.name for one in table.columns][-5:] == [
        "value",
        "95 % interval",
        "bound",
        "chance",
        "verdict",
    ]
    assert "chance: a loss that chance alone hardly shows" in table.notes[0]
    plain = verdicts_table(judged(weeks, *EVERY, has_ranks=False))
    assert "chance" not in [one.name for one in plain.columns]
