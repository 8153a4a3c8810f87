"""A missing cell is an error that names it, or is left undefined on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import MERGED, OWN, merged_rows, own_rows, read_back

from vlcpctl.core.errors import BadInput
from vlcpctl.report.report import ReportRequest, build

HOLE = (OWN[0], (None, OWN[1][1]), OWN[2])


def _complaint(path: Path, rows: list[dict[str, Any]], **fields: Any) -> str:
    with pytest.raises(BadInput) as caught:
        build(read_back(path / "r", rows), ReportRequest(**fields))
    return str(caught.value)


def test_a_hole_is_named(tmp_path: Path) -> None:
    said = _complaint(tmp_path, own_rows(HOLE))
    assert "run 'ctp' seed 0 has no row at (step 1, 00-smileys)" in said
    assert "--allow-missing" in said


def test_a_seed_that_stopped_early_is_named(tmp_path: Path) -> None:
    said = _complaint(tmp_path, own_rows() + own_rows(OWN[:2], seed=1))
    assert "seed 1 has no row at (step 2, 00-smileys), (step 2, 01-people)" in said


def test_the_merged_diagonal_alone_is_complete(tmp_path: Path) -> None:
    diagonal = tuple((None,) * step + (50.0,) for step in range(3))
    assert build(read_back(tmp_path / "r", merged_rows(diagonal)), ReportRequest()).tracks


def test_a_last_merged_row_that_was_begun_must_be_whole(tmp_path: Path) -> None:
    rows = merged_rows((*MERGED[:2], (45.0, None, 35.0)))
    assert "(step 2, merged 0..1)" in _complaint(tmp_path, rows)


def test_a_task_that_no_run_was_evaluated_on_is_left_out_on_request(tmp_path: Path) -> None:
    without = tuple((line[0], *(None for _ in line[1:2]), *line[2:]) for line in OWN)
    rows = own_rows(without) + own_rows(without, run="er", checkpoint="e")
    assert "has no row at (step 1, task 1)" in _complaint(tmp_path, rows)
    document = build(read_back(tmp_path / "r", rows), ReportRequest(allow_missing=True))
    (track,) = document.tracks
    for run in track.runs:
        for name, value in (("own_final", 35.0), ("own_learned", 45.0), ("forgetting_max", 20.0)):
            found = run.summary("rm", name)
            assert found is not None
            assert found.mean == pytest.approx(value)
    assert "no last model was evaluated on task 1" in document.notes[0]
    # If one run has it, the other one lacks it.
    rows = own_rows() + own_rows(without, run="er", checkpoint="e")
    document = build(read_back(tmp_path / "r", rows), ReportRequest(allow_missing=True))
    of = {run.name: run.summary("rm", "own_final") for run in document.tracks[0].runs}
    assert of["er"] is None
    assert of["ctp"] is not None


def test_a_metric_that_a_task_cannot_have_is_not_missing(tmp_path: Path) -> None:
    rows = own_rows()
    for one in rows:
        one["metrics"] = {"acc1": 50.0} | ({} if one["task_step"] == 1 else {"acc5": 70.0})
    (track,) = build(read_back(tmp_path / "r", rows), ReportRequest()).tracks
    assert track.runs[0].summary("acc1", "own_final") is not None
    assert track.runs[0].summary("acc5", "own_final") is None
