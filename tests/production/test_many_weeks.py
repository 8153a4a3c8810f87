"""Three years of weekly updates of a tiny model: what a week costs, part by part."""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.production import make_place, write_week

from vlcpctl.jobs.runner import JobRunner
from vlcpctl.jobs.script import CommandLine
from vlcpctl.production.layout import Layout
from vlcpctl.production.lines import INDEX, Call
from vlcpctl.production.update import UpdateRequest, update

WEEKS = 150
PAIRS = 20
GIVEN = {
    "preset": "tiny",
    "batch_size": 4,
    "steps": 1,
    "buffer_size": "8",
    "holdout": "test=0.3",
    "fail_if": ("rm:lt:0", "worst_drop:gt:200", "bwt_gem:lt:-200"),
    "undefined": "pass",
}
FLAT = ("before", "train-step", "buffer", "guards", *INDEX)
BOUNDED = "weeks"  # all earlier weeks for a year, then at most 52
LINEAR = ("split", "update itself")  # read and list the earlier weeks


class Costs:
    """The CPU seconds of each part of each week."""

    def __init__(self) -> None:
        self.weeks: list[Counter[str]] = []

    def run(self, lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
        """Run the lines one by one; the first that failed."""
        for line in lines:
            before = _seconds(resource.RUSAGE_CHILDREN)
            runner = JobRunner([line], 1)
            runner.run()
            if runner.failed:
                return runner.failed
            if self.weeks:
                self.weeks[-1][_part(line)] += _seconds(resource.RUSAGE_CHILDREN) - before
        return None

    def of(self, part: str) -> np.ndarray:
        """The seconds of a part (weeks,)."""
        return np.array([week[part] for week in self.weeks])


def _seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _part(line: CommandLine) -> str:
    """The name of a line: that of the rows it writes, or of its command."""
    made = Path(line.makes or "")
    return made.stem if made.suffix == ".ndjson" else line.words[0]


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_the_cost_of_a_week_is_flat_but_for_the_evaluation_of_earlier_weeks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, state, costs = make_place(tmp_path, 0), tmp_path / "prod", Costs()
    from vlcpctl.production.guards import find_guards

    guards = find_guards(state, [str(place / "golden" / "00-golden")])
    began = time.monotonic()
    for week in range(1, WEEKS + 1):
        data = write_week(tmp_path / "week.parquet", week, PAIRS)
        request = UpdateRequest(
            state=state,
            call=Call(data=(str(data),), quiet=True, small_guard=True),
            given={**GIVEN, "guards": guards} if week == 1 else {},
            init=str(place / "model"),
        )
        costs.weeks.append(Counter())
        own, children = _seconds(resource.RUSAGE_SELF), _seconds(resource.RUSAGE_CHILDREN)
        with Layout(state).locked():
            outcome = update(request, costs.run)
        assert (outcome.judged.accepted, outcome.number) == (True, week)
        costs.weeks[-1]["update itself"] = _seconds(resource.RUSAGE_SELF) - own
        costs.weeks[-1]["all"] = _seconds(resource.RUSAGE_CHILDREN) - children
        if week % 10 == 0:
            _show(costs, week, time.monotonic() - began, state, capfd)
    _check(costs)


def _show(
    costs: Costs, week: int, wall: float, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = [part for part in costs.weeks[-1] if part != "all"]
    means = {part: float(costs.of(part)[-10:].mean()) for part in parts}
    text = "  ".join(f"{part} {seconds:.2f}" for part, seconds in means.items())
    with capfd.disabled():
        print(f"week {week:3d}: CPU seconds {sum(means.values()):.2f}: {text} (wall {wall:.0f} s)")
        disk = sum(one.lstat().st_size for one in state.rglob("*") if one.is_file())
        last = Layout(state).week(week)
        own = sum(one.lstat().st_size for one in last.rglob("*") if one.is_file())
        print(
            f"  disk: {disk / 1e6:.2f} MB, {own / 1e6:.2f} of the week; {_evaluated(last)} images"
        )


def _evaluated(week: Path) -> int:
    """The images on which a week evaluated its model, by its rows."""
    texts = [file.read_text(encoding="utf-8") for file in week.rglob("*.ndjson")]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    return sum(row.get("n_images") or 0 for row in rows if row.get("gallery") == "own")


def _check(costs: Costs) -> None:
    early, late = slice(9, 39), slice(WEEKS - 30, WEEKS)
    for part in FLAT:
        before, after = costs.of(part)[early], costs.of(part)[late]
        assert np.median(after) < 1.5 * np.median(before) + 0.1, part
    weeks = costs.of(BOUNDED)
    assert np.median(weeks[late]) < 1.5 * np.median(weeks[40:60]) + 0.1
    for part in LINEAR:
        seconds = costs.of(part)
        middle = np.median(seconds[WEEKS // 2 - 15 : WEEKS // 2 + 15])
        growth = np.median(seconds[late]) - middle
        assert growth < 1.5 * (middle - np.median(seconds[early])) + 0.5, part
    # A report has a cell for each week and each checkpoint since: it alone grows faster.
    rows = WEEKS * (WEEKS + 1) / 2
    assert np.median(costs.of("forgetting-report")[late]) < 0.001 * rows
