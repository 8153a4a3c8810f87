"""Rows that share a cell, a matrix, a curve, a table or a mean agree about how they were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.eval_rows import current, merged_rows, own_rows, row, write_rows

from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import read_rows
from vlcpctl.report.comparable import parse_fields, require_alike
from vlcpctl.report.report import Document, ReportRequest, build


def _build(path: Path, rows: list[dict[str, Any]], *allow_mixed: str) -> Document:
    found = read_rows([write_rows(path / "r", rows)], parse_fields(allow_mixed))
    return build(found, ReportRequest(allow_mixed=allow_mixed))


def _changed(rows: list[dict[str, Any]], place: int, **fields: Any) -> list[dict[str, Any]]:
    return [one | fields if number == place else one for number, one in enumerate(rows)]


def _other_seed(**fields: Any) -> list[dict[str, Any]]:
    return current(
        [one | {"checkpoint": "other" + one["checkpoint"]} for one in own_rows(seed=1)], **fields
    )


SLOW = {"config": {"id": "slow", "values": {"lr": 0.01}}}
SET = {"config": {"id": "set", "values": {"lr": 0.1, "set": {"ewc.weight": 3}}}}
FULL = current(own_rows())
AGAIN = {"data": "other", "stream": "again"}
TEN, NINE = {"limit": 10, "n_images": 10}, {"n_images": 49}
LOST = {"tasks": ["00-other"], "data": "data of 00-other"}
OF_DATA = "data is data of 00-smileys"
PROMPTS = [
    _changed(current(own_rows(), options={name: one}), 1, options={name: other})
    for name, one, other in (("prompts", "a", "b"), ("seed", 0, 1))
]
# Rows, the field in which they differ, and both values.
MIXED = {
    "a limited row": (_changed(FULL, 1, **TEN), "limit", "limit is not set", "10"),
    "separate beside unite": (
        _changed(FULL, 1, options={"duplicates": "separate"}),
        *("options", "duplicates is unite", "separate"),
    ),
    "a stream that was split again": (_changed(FULL, 1, **AGAIN), "data", OF_DATA, "other"),
    "other images in a column": (_changed(FULL, 1, **NINE), "counts", "n_images is 50", "49"),
    "other images in the last row of another run": (
        [*FULL, *_changed(current(own_rows(run="er")), 5, **NINE)],
        *("counts", "n_images is 50", "49"),
    ),
    "a second seed on a stream that was split again": (
        [*FULL, *_changed(_other_seed(), 1, **AGAIN)],
        *("data", OF_DATA, "other"),
    ),
    "two checkpoints of one step": (
        _changed(FULL, 1, checkpoint="other"),
        *("checkpoint", "checkpoint is other", "c1"),
    ),
    "seeds with other --lr": (FULL + _other_seed(**SLOW), "config", "lr is 0.1", "0.01"),
    "seeds with other --set": (
        FULL + _other_seed(**SET),
        *("config", "set is not set", "{'ewc.weight': 3}"),
    ),
    "other tasks in a merged gallery": (
        _changed(merged_rows(), 2, **LOST),
        *("data", OF_DATA, "data of 00-other"),
    ),
    "other prompts for the same data": (PROMPTS[0], "options", "prompts is a", "b"),
    "one seed with two probe seeds": (PROMPTS[1], "options", "seed is 0", "1"),
}


@pytest.mark.parametrize(("rows", "field", "one", "other"), MIXED.values(), ids=MIXED)
def test_mixed_rows_are_refused_by_name_unless_allowed(
    tmp_path: Path, rows: list[dict[str, Any]], field: str, one: str, other: str
) -> None:
    said = f"{one} in one row and {other} in another"
    with pytest.raises(BadInput) as caught:
        _build(tmp_path, rows)
    message = str(caught.value)
    assert said in message
    assert message.count(f"{tmp_path / 'r'}:") == 2
    assert message.endswith(f"or use --allow-mixed {field}")
    document = _build(tmp_path, rows, field)
    (note,) = [note for note in document.notes if note.startswith("--allow-mixed")]
    assert said in note


def test_what_may_differ_is_not_refused(tmp_path: Path) -> None:
    options = {"prompts": "a", "seed": 0}
    rows = [one | {"options": options | {"prompts": one["task"]}} for one in FULL]
    rows += [
        one | {"options": one["options"] | {"seed": 1}, "seed": 1, "checkpoint": one["step"]}
        for one in rows
    ]
    rows = [one | {"checkpoint": str(one["checkpoint"])} for one in rows]
    outside = row(task="coco", task_step=None, step=2)
    assert _build(tmp_path, [*rows, *current([outside], limit=10, options={"seed": 0})]).tracks


def test_a_baseline_from_before_data_were_rewritten_may_have_more_images(tmp_path: Path) -> None:
    new = {"data_content": "new", "n_images": 8}
    rows = [FULL[0] | {"n_images": 9}, FULL[0] | {"step": 1, "checkpoint": "c1"} | new]
    before, after = read_rows([write_rows(tmp_path / "r", rows)], frozenset())
    require_alike([(before, after)])
    with pytest.raises(BadInput, match="n_images is 9 in one row and 8 in another"):
        require_alike([(before, structs.replace(before, n_images=after.n_images))])


@pytest.mark.parametrize("fields", [{"data_content": "new", "n_images": 3}, AGAIN])
def test_runs_and_seeds_on_other_samples_have_one_note(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    other = [*_other_seed(), *current(own_rows(run="er"))]
    other = [one | (fields if one["task_step"] == 0 else {}) for one in other]
    (note,) = _build(tmp_path, [*FULL, *other]).notes
    assert "'00-smileys'" in note


def test_a_copy_of_a_run_is_not_a_second_seed(tmp_path: Path) -> None:
    """Its spread over seeds would be 0."""
    copies = [one | {"seed": 1} for one in FULL]
    with pytest.raises(BadInput, match="cannot share a checkpoint: seed is 0 in one row and 1"):
        _build(tmp_path, FULL + copies)
    assert _build(tmp_path, FULL + copies, "seed").notes
