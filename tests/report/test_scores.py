"""Rows become runs and matrices; what is missing, damaged or too much is one error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collected import collect, facts_of, reported
from support.eval_rows import MERGED, NAMES, OWN, current, merged_rows, own_rows, read_back, row

from vlcpctl.core.errors import BadInput
from vlcpctl.report.report import ReportRequest, build, identity
from vlcpctl.report.write import write_report

NAN = np.nan


def test_rows_fill_the_matrices(tmp_path: Path) -> None:
    start = [row(step=None, task_step=task, metrics={"rm": 7 + task}) for task in range(3)]
    (track,) = collect(read_back(tmp_path / "r", start + own_rows() + merged_rows()))
    (run,) = track.runs
    own, merged = run.own["rm"][0, 1:-1], run.merged["rm"][0]
    np.testing.assert_array_equal(run.own["rm"][0, 0], [7, 8, 9])
    np.testing.assert_array_equal(own, [[60, NAN, NAN], [50, 40, NAN], [40, 42, 30]])
    np.testing.assert_array_equal(merged, [[60, NAN, NAN], [NAN, 44, NAN], [45, 40, 35]])
    assert run.own["t2i_r1"][0, 3, 2] == 15
    assert run.tasks == NAMES[:3]
    assert not run.final_only


def test_data_outside_the_stream_is_transfer(tmp_path: Path) -> None:
    outside = [row(task="coco", task_step=None, step=step, metrics={"rm": 9}) for step in (0, 2)]
    (track,) = collect(read_back(tmp_path / "r", [*own_rows(), *outside]))
    (run,) = track.runs
    assert run.tasks == NAMES[:3]
    assert run.galleries == {"own"}
    assert run.outside == ("coco",)
    np.testing.assert_array_equal(run.own["rm"][0, :, 3], [NAN, 9, NAN, 9, NAN])


REPEATED = merged_rows() + merged_rows(((None,), (None, 50.0)))
REPEATED[-1] |= {"tasks": ["a", "b"], "metrics": {"acc1": 1.0}}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(task="x", gallery="mine")], "r:1: .*gallery"),
        ([row(task="x", gallery="merged", task_step=None)], "r:1: .*must list its tasks"),
        ([row(task="x", gallery="merged", task_step=2, tasks=["a"])], "r:1: .*must list its tasks"),
        ([row(task="x", step=10**9)], "r:1: .*.step`"),
        ([row(task="x", task_step=-1)], "r:1: .*.task_step`"),
        ([row(step=9999, task_step=9999, task="x")], "run 'ctp' has score matrices of more than"),
        (
            REPEATED,
            "r:2 and .*r:6 are both step 1, task 1 of run 'ctp', seed 0 .merged gallery.; remove",
        ),
    ],
    ids=range(7),
)
def test_rows_that_fit_into_no_matrix_are_refused(
    tmp_path: Path, rows: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        collect(read_back(tmp_path / "r", rows))


def test_variants_of_average_precision_are_tracks_of_their_own(tmp_path: Path) -> None:
    fields = {"protocol": "multi-modal", "metrics": {"map_1": 40.0, "map_5": 50.0}}
    rows = [
        *own_rows(),
        row(**fields),
        row(**fields | {"metrics": {"map_1": 9}}, map_variant="ctp"),
    ]
    tracks = collect(read_back(tmp_path / "r", rows))
    assert [track.title for track in tracks] == [
        "retrieval, cross-modal, test split",
        "retrieval, multi-modal, test split",
        "retrieval, multi-modal, map_variant ctp, test split",
    ]
    assert [track.keys for track in tracks] == [("rm", "t2i_r1"), ("map_1", "map_5"), ("map_1",)]
    assert [track.runs[0].own[track.keys[0]][0, 1, 0] for track in tracks] == [60, 40, 9]


def test_data_outside_the_stream_alone_make_a_report(tmp_path: Path) -> None:
    fields = {"task": "average of 2", "task_step": None, "tasks": ["cifar10", "dtd"]}
    rows = [row(step=step, metrics={"acc1": 30.0 - step}, **fields) for step in range(3)]
    document = reported(tmp_path, rows)
    ((_, (table,)),) = document.sections()
    (group,) = table.groups
    assert group.name == "average of 2"
    assert [cell.text for cell in group.rows[0]] == ["ctp", "30.00", "29.00", "28.00"]


HOLE = (OWN[0], (None, OWN[1][1]), OWN[2])


def _complaint(path: Path, rows: list[dict[str, Any]], **fields: Any) -> str:
    with pytest.raises(BadInput) as caught:
        reported(path, rows, **fields)
    return str(caught.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (own_rows(HOLE), "run 'ctp' seed 0 lacks scores at (step 1, 00-smileys)"),
        (
            own_rows() + own_rows(OWN[:2], seed=1),
            "seed 1 lacks scores at (step 2, 00-smileys), (step 2, 01-people)",
        ),
        (merged_rows((*MERGED[:2], (45.0, None, 35.0))), "(step 2, merged 0..1)"),
    ],
    ids=["a hole", "a seed that stopped", "a last merged row that was begun"],
)
def test_missing_cells_are_named(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    assert said in _complaint(tmp_path, rows)


def test_the_merged_diagonal_alone_is_complete(tmp_path: Path) -> None:
    diagonal = tuple((None,) * step + (50.0,) for step in range(3))
    assert reported(tmp_path, merged_rows(diagonal)).tracks


def test_a_task_that_no_run_was_evaluated_on_is_left_out_on_request(tmp_path: Path) -> None:
    without = tuple((line[0], *(None for _ in line[1:2]), *line[2:]) for line in OWN)
    rows = own_rows(without) + own_rows(without, run="er", checkpoint="e")
    said = _complaint(tmp_path, rows)
    assert "lacks scores at (step 1, task 1)" in said
    assert "--allow-missing" in said
    document = reported(tmp_path, rows, allow_missing=True)
    (track,) = document.tracks
    for run in track.runs:
        for name, value in (("own_final", 35.0), ("own_learned", 45.0), ("forgetting_max", 20.0)):
            found = run.summary("rm", name)
            assert found is not None
            assert found.mean == pytest.approx(value)
    assert "no last model was evaluated on task 1" in document.notes[0]
    # If one run has it, the other one lacks it.
    rows = own_rows() + own_rows(without, run="er", checkpoint="e")
    document = reported(tmp_path, rows, allow_missing=True)
    of = {run.name: run.summary("rm", "own_final") for run in document.tracks[0].runs}
    assert of["er"] is None
    assert of["ctp"] is not None


def test_a_metric_that_a_task_cannot_have_is_not_missing(tmp_path: Path) -> None:
    rows = own_rows()
    for one in rows:
        one["metrics"] = {"acc1": 50.0} | ({} if one["task_step"] == 1 else {"acc5": 70.0})
    (track,) = reported(tmp_path, rows).tracks
    assert track.runs[0].summary("acc1", "own_final") is not None
    assert track.runs[0].summary("acc5", "own_final") is None


def _row(step: int, task: int, **fields: Any) -> dict[str, Any]:
    about = {"step": step, "checkpoint": f"c{step}", "task_step": task, "task": f"t{task}"}
    return row(**about | fields)


def _weekly(steps: int) -> list[dict[str, Any]]:
    """Each week's model on its own week and the first, the last model on all."""
    cells = {(step, task) for step in range(steps) for task in (0, step)}
    cells |= {(steps - 1, task) for task in range(steps)}
    return current([_row(step, task) for step, task in sorted(cells)])


def test_one_row_of_a_late_step_costs_nothing(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", current([_row(0, 0), _row(999, 999)]))
    started = time.process_time()
    with pytest.raises(BadInput, match=r"and \d+ more; evaluate them, or use --allow-missing"):
        build(rows, ReportRequest())
    request = ReportRequest(allow_missing=True)
    document = build(rows, request)
    assert write_report(document, identity(rows, request), tmp_path / "out", force=False)
    assert time.process_time() - started < 10
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) < 200_000
    found = facts_of(document, "score")
    assert [(one["step"], one["data"], one["value"]) for one in found] == [
        ("0", "t0", 50.0),
        ("999", "t999", 50.0),
    ]


def test_a_thousand_weeks_make_a_report_of_some_megabytes(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", _weekly(1000))
    request = ReportRequest(allow_missing=True)
    started = time.process_time()
    write_report(build(rows, request), identity(rows, request), tmp_path / "out", force=False)
    assert time.process_time() - started < 20
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) < 20_000_000
    note = "shows 100 of 1000 steps and 100 of 1000 tasks"
    assert note in (tmp_path / "out/report.html").read_text()
    assert note in (tmp_path / "out/report.md").read_text()


def test_the_id_of_rows_is_of_all_their_fields_and_of_no_order(tmp_path: Path) -> None:
    usual = [_row(0, 0), _row(1, 1)]
    changes = ({"data": "d9"}, {"seed": 9}, {"metrics": {"rm": 9.0}}, {"n_images": 9})
    every = [usual, *([usual[0] | one, usual[1]] for one in changes)]
    ids = [
        identity(read_back(tmp_path / str(number), rows), ReportRequest())["rows"]
        for number, rows in enumerate([*every, usual[::-1]])
    ]
    assert ids[0] == ids[-1]
    assert len(set(ids)) == len(every)
