"""--fail-if: its grammar, which conditions hold, and losses above what chance shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.collected import reported
from support.eval_rows import MERGED, OWN, current, merged_rows, own_rows, read_back, row
from support.weekly_rows import Weeks

from vlcpctl.core.errors import BadInput, GateFailed, UsageError
from vlcpctl.metrics.chance import PER_REPORT, WEEKS_A_YEAR, critical_value
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.facts import DROPS, Facts
from vlcpctl.report.gates import (
    Gate,
    Verdict,
    enforce,
    is_beyond,
    judge,
    parse_gate,
    verdicts_table,
)
from vlcpctl.report.intervals import Interval
from vlcpctl.report.report import Document, Files, ReportRequest, as_line, build
from vlcpctl.report.scores import Curve, Drop, Spread, Track

KEYS = ("rm", "t2i_r1", "acc1")


def _parsed(text: str) -> Gate:
    return parse_gate(text, KEYS)


@pytest.mark.parametrize("name", [*DEFINITIONS, *DROPS])
@pytest.mark.parametrize("key", [None, "acc1"])
def test_every_summary_and_drop_takes_a_key(name: str, key: str | None) -> None:
    gate = _parsed(f"{name}.{key}:gt:1" if key else f"{name}:gt:1")
    assert (gate.metric.name, gate.metric.key, gate.selectors) == (name, key, ())


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ("data=coco", {"data": "coco"}),
        ("run=w*,data=c?,evaluator=r*", {"run": "w*", "data": "c?", "evaluator": "r*"}),
        ("data=a:b:lt:5", {"data": "a:b:lt:5"}),
        ("data=me@host", {"data": "me@host"}),
        ("data=a=b", {"data": "a=b"}),
        ("data=a[,]b,run=x", {"data": "a[,]b", "run": "x"}),
        ("data=[],]x,run=y", {"data": "[],]x", "run": "y"}),
        ("data=a[b,run=x", {"data": "a[b", "run": "x"}),
        ("data= ", {"data": " "}),
    ],
)
def test_a_pattern_may_contain_anything(selectors: str, expected: dict[str, str]) -> None:
    gate = _parsed(f"drop@{selectors}:gt:3")
    assert dict(gate.selectors) == expected
    assert (gate.metric.text, gate.comparison, gate.bound) == ("drop", "gt", 3.0)


@pytest.mark.parametrize(
    ("text", "key", "selectors"),
    [
        ("r@1:lt:5", "r@1", {}),
        ("r@1@run=a@b:lt:5", "r@1", {"run": "a@b"}),
        ("drop.r@1@data=x:lt:5", "r@1", {"data": "x"}),
        ("r:lt:5", "r", {}),
        ("a:b@run=x:lt:5", "a:b", {"run": "x"}),
        ("bwt_gem.a.b:lt:5", "a.b", {}),
    ],
)
def test_keys_of_rows_may_contain_anything(text: str, key: str, selectors: dict[str, str]) -> None:
    gate = parse_gate(text, ["r", "r@1", "a:b", "a.b"])
    assert (gate.metric.key, dict(gate.selectors)) == (key, selectors)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bwt_gm:lt:1", "bwt_gem"),
        ("bwt_gem.t2i_r2:lt:1", "t2i_r1"),
        ("rm.t2i:lt:1", "rm"),
        ("bwt_gem:<:1", "<"),
        ("bwt_gem:lt:nan", "nan"),
        ("bwt_gem:lt:1_0", "1_0"),
        ("bwt_gem", "METRIC:OP:VALUE"),
        ("drop@dta=coco:lt:1", "data"),
        ("drop@:lt:1", "FIELD=GLOB"),
        ("drop@data=a,b:lt:1", r"\[,\]"),
        ("drop@data=a,data=b:lt:1", "twice"),
        ("own_final.rm@data=coco:lt:1", "takes no data="),
        ("drop@step=last:lt:1", "takes no step="),
        ("rm@step=end:lt:1", "last, start"),
        ("config.lr:lt:1", "not a score"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _parsed(text)


def test_a_difference_that_is_a_bound_but_for_rounding_is_the_bound() -> None:
    assert 0.3 - 0.2 != 0.1
    assert not is_beyond(0.1 + 1e-13, "gt", 0.1)
    assert is_beyond(0.3 - 0.2, "ge", 0.1)
    assert is_beyond(0.1001, "gt", 0.1)


JOINT = (*[()] * 2, (70.0, 70.0, 70.0))


def _judged(path: Path, *fail_if: str, runs: tuple[str, ...] = ()) -> Document:
    rows = own_rows() + merged_rows() + own_rows(JOINT, run="joint")
    return reported(path, rows, fail_if=fail_if, runs=runs)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("bwt_gem:lt:-8", True),
        ("bwt_gem:lt:-9", False),
        ("bwt_gem:le:-9", True),
        ("bwt_gem:ge:-9", True),
        ("bwt_gem.t2i_r1:lt:-5", False),
        ("bwt_ctp:gt:9", True),
        ("rm:lt:36", True),
        ("t2i_r1:lt:17.4", False),
        ("rm@step=0,gallery=own:lt:60.1", True),
        ("bwt_gem.rm@data=00-*:lt:-19", True),
    ],
)
def test_a_condition_is_compared_with_the_run(tmp_path: Path, condition: str, holds: bool) -> None:
    (verdict,) = _judged(tmp_path, condition, runs=("ctp",)).verdicts
    assert verdict.holds is holds


def test_a_gallery_is_selected(tmp_path: Path) -> None:
    conditions = ("rm:lt:0", "rm@gallery=*:lt:0", "bwt_ctp@gallery=merged:gt:50")
    verdicts = _judged(tmp_path, *conditions).verdicts
    assert [(one.run, one.metric) for one in verdicts] == [
        ("ctp", "merged_final.rm"),
        ("joint", "own_final.rm"),
        ("ctp", "own_final.rm"),
        ("ctp", "merged_final.rm"),
        ("joint", "own_final.rm"),
        ("ctp", "bwt_ctp.rm"),
        ("joint", "bwt_ctp.rm"),
    ]
    values = {one.metric: one.value for one in verdicts if one.run == "ctp"}
    assert (values["own_final.rm"], values["merged_final.rm"]) == (pytest.approx(112 / 3), 35.0)


def test_what_matches_nothing_is_an_error_with_undefined_pass(tmp_path: Path) -> None:
    rows = own_rows(OWN[:1])
    for condition in ("bwt_gem@run=none:lt:0", "drop:gt:0", "bwt_ctp:gt:0"):
        request = ReportRequest(fail_if=(condition,), undefined="pass")
        with pytest.raises(BadInput):
            enforce(build(read_back(tmp_path / "r", rows), request).verdicts)


@pytest.mark.parametrize("metric", ["bwt_gem", "bwt_ctp", "fwt_gem"])
def test_forgetting_is_not_defined_after_one_task(tmp_path: Path, metric: str) -> None:
    rows = read_back(tmp_path / "r", own_rows(OWN[:1]) + merged_rows(MERGED[:1]))
    request = ReportRequest(fail_if=(f"{metric}:gt:1000", "own_final:lt:1"))
    early, level = build(rows, request).verdicts
    assert early.outcome == "not defined yet (1 task)"
    assert (level.outcome, early.passes, level.passes) == ("passes", False, True)
    with pytest.raises(BadInput, match=r"--undefined pass"):
        enforce([early, level])
    excused = build(rows, replace(request, undefined="pass")).verdicts
    assert [one.passes for one in excused] == [True, True]
    assert excused[0].outcome == "not defined yet (1 task)"
    enforce(excused)


def test_every_verdict_shows_value_bound_and_outcome(tmp_path: Path) -> None:
    document = _judged(tmp_path, "bwt_gem:lt:-10", "rm:lt:36", "bwt_gem@run=x:lt:0")
    table = verdicts_table(document.verdicts)
    names = [column.name for column in table.columns]
    assert names == ["condition", "run", "metric", "value", "bound", "verdict"]
    (group,) = table.groups
    assert [[cell.text for cell in row][1:] for row in group.rows] == [
        ["ctp", "bwt_gem.rm", "-9.0000", "< -10", "passes"],
        ["joint", "bwt_gem.rm", "-", "< -10", "undefined: it was evaluated at its last step only"],
        ["ctp", "merged_final.rm", "35.0000", "< 36", "fails"],
        ["joint", "own_final.rm", "70.0000", "< 36", "passes"],
        ["all runs", "bwt_gem", "-", "< 0", "undefined: no run matches 'x' (known: ctp, joint)"],
    ]
    assert document.verdicts[0].sentence() == "ctp: bwt_gem.rm = -9.0000, not < -10"


def test_the_summary_has_verdicts_as_json(tmp_path: Path) -> None:
    document = _judged(tmp_path, "bwt_gem:lt:-20", runs=("ctp",))
    (found,) = json.loads(as_line(document, {"rows": ""}))["verdicts"]
    assert found == {
        "condition": "bwt_gem:lt:-20",
        "run": "ctp",
        "metric": "bwt_gem.rm",
        "value": -9.0,
        "holds": False,
        "undefined": None,
        "data": None,
        "track": "retrieval, cross-modal, test split",
        "bound": -20.0,
        "is_early": False,
        "passes": True,
        "outcome": "passes",
    }


RETRIEVAL = Track("retrieval", "cross-modal", None, "test", ("rm", "t2i_r1"), (), ())
EIGHTY = {"rm": 80.0, "t2i_r1": 40.0}
ZEROSHOT = Track("zeroshot", "classes", None, "test", ("acc1",), (), ())


def _drop(
    data: str = "coco", before: float | None = 80.0, after: float | None = 70.0, **fields: Any
) -> Drop:
    drop = None if before is None or after is None else Spread((before - after,))
    run = SimpleNamespace(name=fields.get("run", "weekly"), method="", seeds=(), steps=1, of=None)
    is_guard, track = fields.get("is_guard", True), fields.get("track", RETRIEVAL)
    curve = SimpleNamespace(track=track, run=run, is_guard=is_guard, task=None, images=None)
    return Drop(
        curve=cast("Curve", curve),
        data=data,
        key=fields.get("key", "rm"),
        against=fields.get("against", "baseline"),
        baseline=None if before is None else Spread((before,)),
        last=None if after is None else Spread((after,)),
        drop=drop,
        interval=fields.get("interval"),
        undefined=None if drop else f"{data} was not measured",
    )


def _judged_drops(
    conditions: str | list[str], *drops: Drop, undefined: str = "error"
) -> list[Verdict]:
    texts = [conditions] if isinstance(conditions, str) else conditions
    gates = [parse_gate(text, ["rm", "t2i_r1", "acc1"]) for text in texts]
    tracks = [RETRIEVAL, ZEROSHOT]
    facts = Facts(tracks, lambda track: track.keys[0], [], drops)
    return judge(gates, facts, PER_REPORT, early_passes=undefined == "pass")


def test_a_drop_is_judged_on_every_guard() -> None:
    verdicts = _judged_drops(
        "drop:gt:3",
        _drop(),
        _drop("flickr", 50.0, 49.0),
        _drop("cars", 60.0, 50.0, track=ZEROSHOT, key="acc1"),
        _drop("00-food", is_guard=False),
        _drop(key="t2i_r1"),
    )
    assert [(one.data, one.metric, one.value, one.outcome) for one in verdicts] == [
        ("coco", "drop.rm", 10.0, "fails"),
        ("flickr", "drop.rm", 1.0, "passes"),
        ("cars", "drop.acc1", 10.0, "fails"),
    ]
    with pytest.raises(GateFailed, match=r"weekly: drop.rm on coco .* = 10.0000 > 3; weekly"):
        enforce(verdicts)


def test_the_worst_drop_is_one_verdict_per_run_and_names_the_data() -> None:
    verdicts = _judged_drops(
        "worst_drop:gt:3",
        _drop("flickr", 50.0, 49.0),
        _drop(),
        _drop("cars", 60.0, 48.0, track=ZEROSHOT, key="acc1"),
        _drop("00-food", 60.0, 0.0, is_guard=False),
        _drop(run="good", after=80.5),
    )
    assert [(one.run, one.data, one.metric, one.value, one.holds) for one in verdicts] == [
        ("weekly", "cars", "worst_drop.acc1", 12.0, True),
        ("good", "coco", "worst_drop.rm", -0.5, False),
    ]
    (one,) = _judged_drops("worst_drop@data=flickr:gt:3", _drop("flickr", 50.0, 49.0), _drop())
    assert (one.data, one.value) == ("flickr", 1.0)


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ("worst_drop:gt:3", "fails"),
        ("worst_drop:gt:30", "undefined: flickr was not measured"),
        ("worst_drop:lt:3", "passes"),
        ("worst_drop:lt:30", "undefined: flickr was not measured"),
    ],
)
def test_a_guard_that_was_not_measured_may_be_the_worst(condition: str, outcome: str) -> None:
    for order in (1, -1):
        drops = [_drop(), _drop("flickr", 50.0, None)][::order]
        (verdict,) = _judged_drops(condition, *drops)
        assert verdict.outcome == outcome


def test_the_ends_of_the_interval_are_judged() -> None:
    drop = _drop(interval=Interval(2.0, 18.0, 4.0, 300))
    low, high = _judged_drops(["drop_low:gt:3", "drop_high.rm:gt:3"], drop)
    assert (low.value, low.holds, high.value, high.holds) == (2.0, False, 18.0, True)
    assert (low.metric, high.metric) == ("drop_low.rm", "drop_high.rm")


def _rows(*, start: str | None = "s0", steps: int = 3) -> list[dict[str, Any]]:
    """Three weeks, each with a guard that loses 10 points, and the model before them at 80."""
    weeks = own_rows(OWN[:steps])
    weeks += [_guard(step, 70.0 - 10 * step, f"c{step}") for step in range(steps)]
    tasks = [row(step=None, task_step=place, metrics=EIGHTY) for place in range(steps)]
    before = [one | {"checkpoint": "s0"} for one in (*tasks, _guard(None, 80.0, "s0"))]
    return [
        *current(weeks, run="weekly", start=start),
        *current(before, run="production", method="imported", config=None),
    ]


def _guard(step: int | None, score: float, checkpoint: str) -> dict[str, Any]:
    metrics = {"rm": score, "t2i_r1": score / 2}
    return row(step=step, task_step=None, metrics=metrics, checkpoint=checkpoint)


def _built(path: Path, rows: list[dict[str, Any]], *conditions: str, **options: Any) -> Document:
    return reported(path, rows, fail_if=conditions, **options)


def test_rows_of_a_run_and_its_start_are_judged(tmp_path: Path) -> None:
    conditions = ("worst_drop:gt:3", "drop.t2i_r1:gt:15", "drop@data=0*:gt:45", "rm@data=coco:lt:1")
    verdicts = _built(tmp_path, _rows(), *conditions).verdicts
    assert [(one.run, one.data, one.value, one.outcome) for one in verdicts] == [
        ("weekly", "coco", 30.0, "fails"),
        ("weekly", "coco", 15.0, "passes"),
        ("weekly", "00-smileys", 40.0, "passes"),
        ("weekly", "01-people", 38.0, "passes"),
        ("weekly", "02-animals", 50.0, "fails"),
        ("weekly", "coco", 50.0, "passes"),
    ]


def test_an_untrained_baseline_is_compared_with_and_not_judged(tmp_path: Path) -> None:
    conditions = ("bwt_gem:lt:-50", "rm:lt:1", "worst_drop:gt:50")
    document = _built(tmp_path, _rows(start=None), *conditions, baseline="production")
    assert {one.run for one in document.verdicts} == {"weekly"}
    enforce(document.verdicts)
    with pytest.raises(BadInput, match=r"production: bwt_gem.rm is undefined"):
        enforce(_built(tmp_path, _rows(start=None), *conditions).verdicts)


A_YEAR = 1 / WEEKS_A_YEAR
EVERY = ("worst_drop:gt:2", "step_drop:gt:2", "worst_week:gt:5", "bwt_gem.rm:lt:-2")


def judged(weeks: Weeks, *gates: str, has_ranks: bool = True) -> list[Verdict]:
    request = ReportRequest(runs=("ctp",), fail_if=gates, undefined="pass", false_alarms=A_YEAR)
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
    (worst,) = judged(guarded(tmp_path, [range(800), range(798)], 1000), "worst_drop:gt:2")
    assert (worst.outcome, worst.is_resolved, worst.is_clear) == ("passes", True, False)
    assert worst.sentence().endswith("> 2")


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
    with_ranks, plain = (judged(weeks, *EVERY, has_ranks=one) for one in (True, False))
    columns = [one.name for one in verdicts_table(with_ranks).columns]
    assert columns[-5:] == ["value", "95 % interval", "bound", "chance", "verdict"]
    assert "chance" not in [one.name for one in verdicts_table(plain).columns]
