"""What the values of --by time:COLUMN mean: ISO 8601, numbers of one unit, or --time-format."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.pair_files import rows, write_parquet
from support.program import run_program

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.splitting.rules import Rule, by_time
from vlcpctl.data.tasks.samples import Pair

SECONDS, MILLISECONDS = 1_696_464_000, 1_699_142_400_000


def rule(values: list[Any], form: str | None = None) -> Rule:
    pairs = [Pair(0, None, None, [], None, value, None) for value in values]
    return by_time([pairs], "date", None, form)


@pytest.mark.parametrize(
    "tasks",
    [
        ["2022-12-31", "2023", "2023-01-02", "2023-10", "2023-10-05T07", "2023-10-05 07:30"],
        ["2023-10-05T07:30:00", "2023-10-05T07:30:00.05", "2023-10-05T07:30:00.050001"],
        ["2023-10-05T01:00:00+02:00", "2023-10-04T20:00:00-0400", "2023-10-05 00:30:00.00Z"],
        ["20231005", "2023-10-06", "20231007T120000Z"],
        ["2023-W01", "2023-W40-4", "2023-10-06"],
        ["9", "10", "100.5"],
        ["01", "02", "12"],
        [2023, "2023-10"],
        [SECONDS, SECONDS + 0.5, 4 * 10**9],
        [1, 2 * 10**9, 3 * 10**10, 2 * 10**12],
    ],
)
def test_times_are_ordered_as_times(tasks: list[Any]) -> None:
    found = rule(tasks[::-1] * 2)
    assert found.names == list(map(str, tasks))
    task_of = found.begin()
    assert [task_of("", Pair(0, None, None, [], None, one, None)) for one in tasks] == found.names


def test_what_is_the_same_time_is_one_task() -> None:
    same = ["2023-10-05T00:00Z", "2023-10-05", "2023-10-05 02:00:00+02", "20231005T000000.000"]
    assert rule(same).names == ["2023-10-05"]
    # Its pairs count together: three of one time, written in two ways, are as many as the others.
    pairs = [Pair(0, None, None, [], None, one, None) for one in ("01", "1", "01", 2, 3, 4)]
    assert by_time([pairs], "date", 2).names == ["01", "2 to 4"]


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["11/20/2023", "02/01/2024"], "%m/%d/%Y"),
        (["20.11.2023", "01.02.2024"], "%d.%m.%Y"),
        (["20 Nov 2023", "1 Feb 2024"], "%d %b %Y"),
        (["Mon, 20 Nov 2023 09:00:00 +0100", "Mon, 20 Nov 2023 07:00:00 -0200"], None),
        (["2023-9", "2023-10"], "%Y-%m"),
        ([202311.0, 202402.0], "%Y%m"),
    ],
)
def test_other_text_needs_its_format(values: list[Any], form: str | None) -> None:
    form = form or "%a, %d %b %Y %H:%M:%S %z"
    assert rule(values[::-1], form).names == list(map(str, values))
    if isinstance(values[0], str):
        with pytest.raises(BadInput, match="--time-format"):
            rule(values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["9 to 5", "2023"], "--time-format"),
        (["2023-02-30", "2023-02-01"], "--time-format"),
        (["2023-10 12:00"], "--time-format"),
        ([SECONDS, "2023-10-05"], "--time-format"),
        ([SECONDS, MILLISECONDS], "two units"),
        ([float(MILLISECONDS * 10**3), MILLISECONDS * 10**6], "two units"),
        ([2023, SECONDS], "two units"),
        ([20231005, SECONDS], "two units"),
        ([None], "no pair has a value"),
    ],
)
def test_what_is_no_time_of_one_kind_is_refused(values: list[Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        rule(values)


@pytest.mark.parametrize("form", ["date", "%Q", "%Y%Y", "%H:%M"])
def test_a_format_that_strptime_does_not_know_is_refused(form: str) -> None:
    with pytest.raises(UsageError, match="--time-format"):
        rule(["2023"], form)


@pytest.mark.parametrize(
    ("values", "kind", "form"),
    [
        (["11/20/2023", "02/01/2024"], pa.string(), "%m/%d/%Y"),
        ([date(2023, 11, 20), date(2024, 2, 1)], pa.timestamp("ns"), None),
        ([date(2023, 11, 20), date(2024, 2, 1)], pa.date32(), None),
        (
            [datetime(2023, 11, 20, tzinfo=UTC), datetime(2024, 2, 1, tzinfo=UTC)],
            pa.timestamp("ms", "Asia/Tokyo"),
            None,
        ),
        ([1_700_438_400, 1_706_745_600], pa.int64(), None),
    ],
)
def test_the_plan_has_the_first_and_last_time_of_each_task(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], values: list[Any], kind: Any, form: str
) -> None:
    data = [{**row, "when": values[place % 2]} for place, row in enumerate(rows(8))]
    path = write_parquet(tmp_path / "p.parquet", data, when=kind)
    words = ["split", path, "-o", tmp_path / "out", "--by", "time:when"]
    words += ["--time-format", form] if form else []
    plan = json.loads(run_program(capfd, *words, "--dry-run").out)
    expected = [(time, time) for time in ("2023-11-20", "2024-02-01")]
    assert [(one["first"], one["last"]) for one in plan["times"]] == expected
    done = run_program(capfd, *words, "--holdout", "none")
    assert done.code == 0
    assert "2023-11-20 to 2023-11-20" in done.err
