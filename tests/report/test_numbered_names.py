"""Names of tasks in reports of more than 100 weeks: they sort, and rows of any week are joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, read_back, row

from vlcpctl.files.rows import Row
from vlcpctl.report.joined import joined, number_of, numbered_alike
from vlcpctl.report.report import ReportRequest, build
from vlcpctl.report.tables import step_label


def weekly(step: int, tasks: list[int], digits: int, **fields: Any) -> list[dict[str, Any]]:
    """Rows of the checkpoint of a week, on its own data and on that of some other weeks."""
    found = []
    for task in tasks:
        about = {"task": f"{task:0{digits}d}-week", "tasks": [f"{task:0{digits}d}-week"]}
        one = row(step=step, **fields) | {"task_step": task, **about}
        found += [made | {"data": f"data {task}"} for made in current([one])]
    return found


def merged(step: int, digits: int) -> dict[str, Any]:
    names = [f"{task:0{digits}d}-week" for task in range(step + 1)]
    about = {"gallery": "merged", "task": "merged", "tasks": names, "task_step": step}
    return current([row(step=step) | about])[0] | {"data": "the first weeks"}


def run_of(place: Path, rows: list[dict[str, Any]]) -> Any:
    (track,) = build(read_back(place, rows), ReportRequest(allow_missing=True)).tracks
    return track.runs[0]


@pytest.mark.parametrize("again", [[], [5], [5, 50]], ids=str)
def test_rows_of_week_50_and_of_week_150_are_joined(tmp_path: Path, again: list[int]) -> None:
    rows = weekly(50, [5, 50], 2) + weekly(150, [*again, 150], 3)
    run = run_of(tmp_path / "r", rows)
    assert [run.tasks[step] for step in (5, 50, 150)] == ["005-week", "050-week", "150-week"]
    labels = [step_label(run, step) for step in range(len(run.tasks))]
    assert labels == sorted(labels)
    assert (labels[5], labels[6]) == ("005-week", "006 task 6")


def test_the_same_merged_gallery_evaluated_again_is_one_row(tmp_path: Path) -> None:
    rows = [*weekly(150, [5], 3), merged(50, 2), merged(50, 3)]
    found = joined(read_back(tmp_path / "r", rows)).rows
    assert [one.tasks[5] for one in found if one.gallery == "merged"] == ["005-week"]


def test_shorter_runs_and_data_outside_are_left_as_they_are(tmp_path: Path) -> None:
    few = read_back(tmp_path / "few", weekly(9, [5, 9], 2))
    assert numbered_alike(few) == few
    outside = current([row(step=150, task_step=None, task="05-week", tasks=["05-week"])])
    found = numbered_alike(_read(tmp_path, weekly(150, [5, 150], 3) + outside))
    assert [one.task for one in found] == ["005-week", "150-week", "05-week"]


def test_only_a_number_that_is_the_step_counts() -> None:
    assert number_of("2024-week", 2024) == "2024"
    for name in ("2024-week", "5-week", "05", "\u0665\u0665-week", "00000005-week", "-5-week", ""):
        assert number_of(name, 5) is None


def _read(place: Path, rows: list[dict[str, Any]]) -> list[Row]:
    return read_back(place / "rows", rows)
