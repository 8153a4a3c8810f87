"""--fail-if on drops against the baseline and on single data sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.eval_rows import OWN, current, own_rows, read_back, row

from vlcpctl.core.errors import BadInput, GateFailed
from vlcpctl.metrics.chance import PER_REPORT
from vlcpctl.report.facts import Facts
from vlcpctl.report.gates import Verdict, enforce, judge, parse_gate
from vlcpctl.report.intervals import Interval
from vlcpctl.report.joined import JoinedRows
from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.scores import Curve, Drop, Spread, Track

RETRIEVAL = Track("retrieval", "cross-modal", None, "test", ("rm", "t2i_r1"), (), ())
EIGHTY = {"rm": 80.0, "t2i_r1": 40.0}
ZEROSHOT = Track("zeroshot", "classes", None, "test", ("acc1",), (), ())


def _drop(
    data: str = "coco", before: float | None = 80.0, after: float | None = 70.0, **fields: Any
) -> Drop:
    drop = None if before is None or after is None else Spread((before - after,))
    run = SimpleNamespace(name=fields.get("run", "weekly"), method="", seeds=(), steps=1)
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


def _judged(conditions: str | list[str], *drops: Drop, undefined: str = "error") -> list[Verdict]:
    texts = [conditions] if isinstance(conditions, str) else conditions
    gates = [parse_gate(text, ["rm", "t2i_r1", "acc1"]) for text in texts]
    tracks = [RETRIEVAL, ZEROSHOT]
    facts = Facts(tracks, lambda track: track.keys[0], JoinedRows([], {}), drops)
    return judge(gates, facts, PER_REPORT, early_passes=undefined == "pass")


def test_a_drop_is_judged_on_every_guard() -> None:
    verdicts = _judged(
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


def test_a_data_selector_also_covers_tasks_of_the_stream() -> None:
    drops = _drop(), _drop("00-food", 60.0, 55.0, is_guard=False)
    (verdict,) = _judged("drop@data=00-*:gt:3", *drops)
    assert (verdict.data, verdict.value, verdict.holds) == ("00-food", 5.0, True)


@pytest.mark.parametrize("name", ["a,b", "a@b", "a:b:gt:1", "a=b", "[x]", "*", "\x1b[31m", "\n"])
def test_names_of_data_and_runs_are_any_text(name: str) -> None:
    pattern = "".join(f"[{char}]" if char in "[*," else char for char in name)
    drops = _drop(name, run=name), _drop(f"x{name}", run=f"x{name}")
    (verdict,) = _judged(f"drop@data={pattern},run={pattern}:gt:1", *drops)
    assert (verdict.data, verdict.run, verdict.holds) == (name, name, True)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("a[,]b", "a,b"), ("[[]x]", "[x]"), ("[*]", "*"), ("a[@]b:c=d", "a@b:c=d"), ("COCO", "COCO")],
)
def test_patterns_are_those_of_fnmatch_in_exact_case(pattern: str, name: str) -> None:
    drops = _drop(name), _drop(f"{name}?"), _drop(name.swapcase() + "_")
    assert [one.data for one in _judged(f"drop@data={pattern}:gt:1", *drops)] == [name]
    (verdict,) = _judged("drop@data=COCO:gt:1", _drop("coco"))
    assert verdict.undefined == "no data matches 'COCO' (known: coco)"


def test_the_worst_drop_is_one_verdict_per_run_and_names_the_data() -> None:
    verdicts = _judged(
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
    (one,) = _judged("worst_drop@data=flickr:gt:3", _drop("flickr", 50.0, 49.0), _drop())
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
        (verdict,) = _judged(condition, *drops)
        assert verdict.outcome == outcome


def test_the_ends_of_the_interval_are_judged() -> None:
    drop = _drop(interval=Interval(2.0, 18.0, 4.0, 300))
    low, high = _judged(["drop_low:gt:3", "drop_high.rm:gt:3"], drop)
    assert (low.value, low.holds, high.value, high.holds) == (2.0, False, 18.0, True)
    assert (low.metric, high.metric) == ("drop_low.rm", "drop_high.rm")


def test_a_key_with_data_is_the_score_of_the_last_checkpoint() -> None:
    drops = (
        _drop(before=None),
        _drop("00-food", 60.0, 55.0, is_guard=False),
        _drop("flickr", 50.0, None),
    )
    verdicts = _judged("rm@data=*:lt:60", *drops)
    assert [(one.data, one.metric, one.value, one.outcome) for one in verdicts[:2]] == [
        ("coco", "rm", 70.0, "passes"),
        ("00-food", "rm", 55.0, "fails"),
    ]
    assert verdicts[2].undefined == "it lacks rows of its last model"
    with pytest.raises(GateFailed, match=r"weekly: rm on 00-food = 55.0000 < 60"):
        enforce(verdicts)


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
    return build(read_back(path / "rows", rows), ReportRequest(fail_if=conditions, **options))


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


def test_without_a_baseline_drops_are_undefined(tmp_path: Path) -> None:
    rows = [one for one in _rows(start=None) if one["run"] == "weekly"]
    document = _built(tmp_path, rows, "worst_drop:gt:50", undefined="pass")
    with pytest.raises(BadInput, match=r"worst_drop.rm on coco is undefined, .*--baseline"):
        enforce(document.verdicts)


def test_an_untrained_baseline_is_compared_with_and_not_judged(tmp_path: Path) -> None:
    conditions = ("bwt_gem:lt:-50", "rm:lt:1", "worst_drop:gt:50")
    document = _built(tmp_path, _rows(start=None), *conditions, baseline="production")
    assert {one.run for one in document.verdicts} == {"weekly"}
    enforce(document.verdicts)
    with pytest.raises(BadInput, match=r"production: bwt_gem.rm is undefined"):
        enforce(_built(tmp_path, _rows(start=None), *conditions).verdicts)
