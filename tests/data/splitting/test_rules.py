"""Which task a pair belongs to: at random, by class, by order, and by time.

Times are ISO 8601, numbers of one unit, or written in --time-format.
"""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.pair_files import rows, write_parquet

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.rules import Rule, by_class, by_time, by_turn
from vlcpctl.data.splitting.stream import describe_plan, make_stream, order_of
from vlcpctl.data.tasks.samples import Pair

SECONDS, MILLISECONDS = 1_696_464_000, 1_699_142_400_000


def pair(value: Any = None, label: str | None = None) -> Pair:
    return Pair(0, None, None, [], label, value, None)


def rule(values: list[Any], form: str | None = None, tasks: int | None = None) -> Rule:
    return by_time([[pair(value) for value in values]], "date", tasks, form)


def counts(found: Rule, pairs: list[Pair]) -> Counter[str]:
    task_of = found.begin()
    return Counter(task_of("", one) for one in pairs)


@pytest.mark.parametrize("count", [20, 21, 23])
def test_iid_tasks_are_equal_parts_that_depend_on_the_seed(count: int) -> None:
    sizes = counts(by_turn(4, 0), [pair()] * count)
    assert (len(sizes), sizes.total()) == (4, count)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    first, again, other = (by_turn(4, seed).begin() for seed in (0, 0, 1))
    turns = [[task_of("", pair()) for _ in range(count)] for task_of in (first, again, other)]
    assert turns[0] == turns[1] != turns[2]


def test_classes_are_dealt_whole_and_evenly() -> None:
    pairs = [pair(label=f"class {number % 5}") for number in range(40)]
    found = by_class([pairs], 2, 0)
    assert sorted(counts(found, pairs).values()) == [16, 24]
    task_of = found.begin()
    assert all(len({task_of("", one) for one in pairs[at::5]}) == 1 for at in range(5))
    for tasks in (6, 9):
        with pytest.raises(BadInput, match="5 classes"):
            by_class([pairs], tasks, 0)


def test_order_puts_tasks_in_order() -> None:
    names = ["a", "b", "c"]
    assert order_of(names, "reverse", 0) == [2, 1, 0]
    assert sorted(order_of(names, "shuffle", 0)) == [0, 1, 2]
    with pytest.raises(UsageError, match="every task exactly once"):
        order_of(names, "c,a", 0)


# -- times


def test_time_cuts_between_values_into_even_parts() -> None:
    months = [f"2024-{month:02d}" for month in range(1, 13)] * 4
    found = rule(months[::-1], tasks=3)
    assert found.names[0] == "2024-01 to 2024-04"
    assert list(counts(found, [pair(month) for month in months]).values()) == [16, 16, 16]
    with pytest.raises(BadInput, match="--tasks"):
        rule([2, *[1] * 11], tasks=5)


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
    assert [task_of("", pair(one)) for one in tasks] == found.names


def test_what_is_the_same_time_is_one_task() -> None:
    same = ["2023-10-05T00:00Z", "2023-10-05", "2023-10-05 02:00:00+02", "20231005T000000.000"]
    assert rule(same).names == ["2023-10-05"]
    # Its pairs count together: three of one time, written in two ways, are as many as the others.
    assert rule(["01", "1", "01", 2, 3, 4], tasks=2).names == ["01", "2 to 4"]


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
    ("values", "form"),
    [
        (["11/20/2023", "02/01/2024"], "%m/%d/%Y"),
        (["2023-11-20 00:00:00.000000", "2024-02-01 00:00:00.000000"], None),  # as of timestamps
        (["2023-11-20 09:00:00.000+0900", "2024-02-01 09:00:00.000+0900"], None),
        ([1_700_438_400, 1_706_745_600], None),
    ],
)
def test_a_rule_has_the_first_and_last_time_of_each_task(
    values: list[Any], form: str | None
) -> None:
    times = [(first, last) for _, first, last in rule(values, form).times]
    assert times == [(time, time) for time in ("2023-11-20", "2024-02-01")]


def test_the_plan_has_them(tmp_path: Path) -> None:
    names = ["2023-11-20", "2024-02-01"]
    days = list(map(date.fromisoformat, names))
    data = [{**row, "when": days[place % 2]} for place, row in enumerate(rows(8))]
    path = write_parquet(tmp_path / "p.parquet", data)
    options = SplitOptions(sources=[str(path)], by="time:when")
    plan = describe_plan(options, tmp_path / "out")
    assert [(one["first"], one["last"]) for one in plan["times"]] == [(day, day) for day in names]
    manifest = make_stream(options, tmp_path / "out")
    assert [task["name"] for task in manifest["tasks"]] == names
