"""Planned rows: their fields and galleries, and which data is foreign to a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.evaluation.membership import TaskPlace, run_checkpoints
from vlcpctl.evaluation.planned_rows import PlannedRow, gallery_rows, holds
from vlcpctl.files.rows import SCHEMA, read_rows

COMMON = {"protocol": "cross-modal", "split": "test", "limit": None, "options": {}}
PLACES = [TaskPlace(f"0{step}-t", step, "home", f"task {step}") for step in range(4)]
MEASURED = {"metrics": {"rm": 1.0}, "n_images": 2, "n_texts": 3, "n_ties": 0}


def checkpoint(step: int | None, seen: int, **facts: Any) -> CheckpointManifest:
    """A manifest after `step`, trained on the first `seen` tasks of the home stream."""
    usual = {
        "run": "ctp",
        "method": "ctp",
        "step": step,
        "stream": "home" if seen else None,
        "tasks": [f"task {number}" for number in range(seen)],
        "task_steps": list(range(seen)),
        "content": "f00d",
    }
    return CheckpointManifest(identity={}, **{**usual, **facts})


def rows(
    manifest: CheckpointManifest,
    places: list[TaskPlace],
    gallery: str,
    common: dict[str, Any] = COMMON,
) -> list[PlannedRow]:
    (given,) = run_checkpoints([manifest])
    return gallery_rows(given, places, gallery, common, tuple(MEASURED))


def merged(step: int, places: list[TaskPlace]) -> list[list[str]]:
    return [row.fields["tasks"] for row in rows(checkpoint(step, step + 1), places, "merged")]


def task_steps(manifest: CheckpointManifest, places: list[TaskPlace]) -> list[int | None]:
    return [row.fields["task_step"] for row in rows(manifest, places, "own")]


def test_a_row_has_the_fields_of_the_schema_in_order() -> None:
    row = rows(checkpoint(1, 2), PLACES, "own")[2].complete(MEASURED)
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
        *("gallery", "task", "tasks", "split", "data", "limit", "options"),
        *("metrics", "n_images", "n_texts", "n_ties"),
        *("start", "parent", "config", "checkpoint"),
    ]
    assert (row["step"], row["task_step"], row["task"], row["tasks"]) == (1, 2, "02-t", ["02-t"])


def test_readers_of_rows_take_them(tmp_path: Path) -> None:
    found = rows(checkpoint(1, 2), PLACES, "both")
    path = tmp_path / "rows.ndjson"
    lines = [{"schema": SCHEMA, **row.complete(MEASURED)} for row in found]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
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
    found = rows(checkpoint(2, 3), PLACES, "merged")
    assert [row.fields["task_step"] for row in found] == [0, 1, 2]
    assert {row.fields["task"] for row in found} == {"merged"}


def test_a_task_of_another_stream_has_no_step() -> None:
    other = TaskPlace("00-coco", 0, "coco", "other")
    assert task_steps(checkpoint(1, 2), [PLACES[0], other]) == [0, None]
    assert task_steps(checkpoint(1, 2), [other]) == [None]
    assert task_steps(checkpoint(1, 0, stream="coco"), [PLACES[0], other]) == [None, 0]


def test_weeks_that_are_streams_of_their_own_are_counted_as_they_were_learned() -> None:
    weeks = [TaskPlace("00-week", 0, f"week {week}", f"task {week}") for week in range(3)]
    third = checkpoint(2, 3, stream="week 2")
    assert task_steps(third, weeks) == [0, 1, 2]
    found = [row.fields["tasks"] for row in rows(third, weeks, "merged")]
    assert found == [["00-week"], ["00-week", "01-week"], ["00-week", "01-week", "02-week"]]
    second = checkpoint(1, 2, stream="week 1")
    assert task_steps(second, weeks) == [0, 1, None]


def test_all_names_in_the_rows_of_a_long_run_sort() -> None:
    weeks = [TaskPlace("00-week", 0, f"week {week}", f"task {week}") for week in range(102)]
    last = checkpoint(101, 102, stream="week 101")
    own = [row.fields["task"] for row in rows(last, weeks, "own")]
    assert own == sorted(own)
    assert (own[5], own[101]) == ("005-week", "101-week")
    assert rows(last, weeks, "merged")[-1].fields["tasks"] == own


def test_a_stream_that_grew_is_at_home_with_its_earlier_tasks() -> None:
    grown = [TaskPlace(f"0{step}-t", step, "grown", f"task {step}") for step in range(3)]
    assert task_steps(checkpoint(0, 1, stream="home"), grown) == [0, 1, 2]
    turned = [TaskPlace(f"0{step}-t", step, "turned", f"task {2 - step}") for step in range(3)]
    assert task_steps(checkpoint(0, 1, stream="home"), turned) == [None, None, 0]


def test_a_buffer_has_no_step() -> None:
    assert task_steps(checkpoint(1, 2), [TaskPlace("buffer", None, None, "b")]) == [None]


def test_a_model_before_the_first_step_is_at_home_in_no_stream() -> None:
    assert task_steps(checkpoint(None, 0), PLACES) == [None] * 4
    assert rows(checkpoint(None, 0), PLACES, "merged") == []


def test_a_later_task_alone_is_taken_for_the_checkpoints_own() -> None:
    assert task_steps(checkpoint(1, 2), PLACES[2:]) == [2, 3]


def test_settings_that_change_numbers_are_in_the_row() -> None:
    found = rows(checkpoint(0, 1), PLACES[:1], "own", {**COMMON, "duplicates": "separate"})
    row = found[0].complete(MEASURED)
    assert row["duplicates"] == "separate"
    assert list(row)[-1] == "checkpoint"


def test_a_file_that_is_not_rows_is_not_taken_for_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    for text in ("", "[]\n", "not JSON\n"):
        path.write_text(text)
        assert not holds(path, rows(checkpoint(0, 1), PLACES, "own"))


def test_rows_are_finished_if_what_was_evaluated_is_the_same(tmp_path: Path) -> None:
    manifest, path = checkpoint(1, 2), tmp_path / "rows"
    trained = [replace(PLACES[0], content="a1"), *PLACES[1:]]  # evaluated pairs are the same
    evaluated = [replace(PLACES[0], content="a1", evaluated="test a1"), *PLACES[1:]]
    copy = [replace(PLACES[0], content="a2", evaluated="test a2"), *PLACES[1:]]
    for places, same in ((PLACES, [PLACES, trained]), (evaluated, [evaluated]), (copy, [copy])):
        lines = [
            {"schema": SCHEMA, **row.complete(MEASURED)} for row in rows(manifest, places, "both")
        ]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        planned = (PLACES, trained, evaluated, copy)
        assert [one for one in planned if holds(path, rows(manifest, one, "both"))] == same
