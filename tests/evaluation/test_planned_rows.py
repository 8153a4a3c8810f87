"""Planned rows: their fields and galleries, and which data is foreign to a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.core.rows import SCHEMA, read_rows
from vlcpctl.evaluation.planned_rows import Place, cells, holds

COMMON = {"protocol": "cross-modal", "split": "test"}
PLACES = [Place(f"0{step}-t", step, "home", f"task {step}") for step in range(4)]
MEASURED = {"metrics": {"rm": 1.0}, "n_images": 2, "n_texts": 3, "n_ties": 0}


def checkpoint(step: int | None, seen: int) -> dict[str, Any]:
    """A manifest after `step`, trained on the first `seen` tasks of the home stream."""
    return {
        "run": "ctp",
        "method": "ctp",
        "seed": 0,
        "buffer": None,
        "step": step,
        "tasks": [f"task {number}" for number in range(seen)],
        "task_steps": list(range(seen)),
        "content": "f00d",
    }


def merged(step: int, places: list[Place]) -> list[list[str]]:
    return [
        cell.fields["tasks"] for cell in cells(checkpoint(step, step + 1), places, "merged", COMMON)
    ]


def task_steps(manifest: dict[str, Any], places: list[Place]) -> list[int | None]:
    return [cell.fields["task_step"] for cell in cells(manifest, places, "own", COMMON)]


def test_a_row_has_the_fields_of_the_schema_in_order() -> None:
    row = cells(checkpoint(1, 2), PLACES, "own", COMMON)[2].row(MEASURED)
    assert list(row) == [
        *(
            "run",
            "method",
            "seed",
            "buffer",
            "step",
            "task_step",
            "stream",
            "evaluator",
            "protocol",
        ),
        *("gallery", "task", "tasks", "split", "metrics", "n_images", "n_texts", "n_ties"),
        "checkpoint",
    ]
    assert (row["step"], row["task_step"], row["task"], row["tasks"]) == (1, 2, "02-t", ["02-t"])


def test_readers_of_rows_take_them(tmp_path: Path) -> None:
    found = cells(checkpoint(1, 2), PLACES, "both", COMMON)
    path = tmp_path / "rows.ndjson"
    rows = [{"schema": SCHEMA, **cell.row(MEASURED)} for cell in found]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_rows([str(path)])) == len(found) == 6
    assert holds(path, found)
    assert not holds(path, found[1:])


def test_own_galleries_are_those_given_future_tasks_too() -> None:
    assert task_steps(checkpoint(1, 2), PLACES) == [0, 1, 2, 3]


def test_merged_galleries_are_all_beginnings_of_the_stream() -> None:
    assert merged(1, PLACES) == [["00-t"], ["00-t", "01-t"]]
    assert merged(1, PLACES[::-1]) == [["00-t"], ["00-t", "01-t"]]


def test_a_merged_gallery_with_a_hole_is_left_out_and_named(capsys: pytest.CaptureFixture) -> None:
    assert merged(3, [PLACES[0], PLACES[1], PLACES[3]]) == [["00-t"], ["00-t", "01-t"]]
    assert "task 2 of the stream is not given" in capsys.readouterr().err


def test_a_merged_row_is_in_the_column_of_its_last_task() -> None:
    found = cells(checkpoint(2, 3), PLACES, "merged", COMMON)
    assert [cell.fields["task_step"] for cell in found] == [0, 1, 2]
    assert {cell.fields["task"] for cell in found} == {"merged"}


def test_a_task_of_another_stream_has_no_step() -> None:
    other = Place("00-coco", 0, "coco", "other")
    assert task_steps(checkpoint(1, 2), [PLACES[0], other]) == [0, None]
    assert task_steps(checkpoint(1, 2), [other]) == [None]
    assert task_steps({**checkpoint(1, 0), "stream": "coco"}, [PLACES[0], other]) == [None, 0]


def test_weeks_that_are_streams_of_their_own_are_counted_as_they_were_learned() -> None:
    weeks = [Place("00-week", 0, f"week {week}", f"task {week}") for week in range(3)]
    third = {**checkpoint(2, 3), "stream": "week 2"}
    assert task_steps(third, weeks) == [0, 1, 2]
    found = [cell.fields["tasks"] for cell in cells(third, weeks, "merged", COMMON)]
    assert found == [["00-week"], ["00-week", "01-week"], ["00-week", "01-week", "02-week"]]
    second = {**checkpoint(1, 2), "stream": "week 1"}
    assert task_steps(second, weeks) == [0, 1, None]


def test_a_stream_that_grew_is_at_home_with_its_earlier_tasks() -> None:
    grown = [Place(f"0{step}-t", step, "grown", f"task {step}") for step in range(3)]
    assert task_steps({**checkpoint(0, 1), "stream": "home"}, grown) == [0, 1, 2]
    turned = [Place(f"0{step}-t", step, "turned", f"task {2 - step}") for step in range(3)]
    assert task_steps({**checkpoint(0, 1), "stream": "home"}, turned) == [None, None, 0]


def test_a_buffer_has_no_step() -> None:
    assert task_steps(checkpoint(1, 2), [Place("buffer", None, None, "b")]) == [None]


def test_a_model_before_the_first_step_is_at_home_in_any_stream() -> None:
    assert task_steps(checkpoint(None, 0), PLACES) == [0, 1, 2, 3]
    assert cells(checkpoint(None, 0), PLACES, "merged", COMMON) == []


def test_a_later_task_alone_is_taken_for_the_checkpoints_own() -> None:
    assert task_steps(checkpoint(1, 2), PLACES[2:]) == [2, 3]


def test_settings_that_change_numbers_are_in_the_row() -> None:
    found = cells(checkpoint(0, 1), PLACES[:1], "own", {**COMMON, "duplicates": "separate"})
    row = found[0].row(MEASURED)
    assert row["duplicates"] == "separate"
    assert list(row)[-1] == "checkpoint"


def test_a_file_that_is_not_rows_is_not_taken_for_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    for text in ("", "[]\n", "not JSON\n"):
        path.write_text(text)
        assert not holds(path, cells(checkpoint(0, 1), PLACES, "own", COMMON))
