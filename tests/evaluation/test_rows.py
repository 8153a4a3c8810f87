"""Planned rows: their fields and galleries, and which data is foreign to a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace, run_checkpoints
from vlcpctl.evaluation.rows import Row, checkpoint_fields, gallery_rows, holds
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
) -> list[Row]:
    (given,) = run_checkpoints([manifest])
    return gallery_rows(given, places, gallery, common, tuple(MEASURED))


def merged(step: int, places: list[TaskPlace]) -> list[list[str]]:
    return [row.fields["tasks"] for row in rows(checkpoint(step, step + 1), places, "merged")]


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


def test_a_model_before_the_first_step_is_at_home_in_no_stream() -> None:
    own = rows(checkpoint(None, 0), PLACES, "own")
    assert [row.fields["task_step"] for row in own] == [None] * 4
    assert rows(checkpoint(None, 0), PLACES, "merged") == []


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


@pytest.mark.parametrize(
    ("origin", "name"), [("preset tiny, not in the paper", "tiny"), ("flag", None), ("", None)]
)
def test_a_row_has_the_preset_of_its_train_step(origin: str, name: str | None) -> None:
    manifest = checkpoint(0, 1, origins={"lr": origin} if origin else {})
    fields = checkpoint_fields(RunCheckpoint(manifest, manifest))
    assert fields.get("preset") == name
    assert "preset" not in fields["config"]["values"]  # the same settings may come from flags
