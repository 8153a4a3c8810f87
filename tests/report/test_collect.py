"""Rows become runs: matrices by step and task, a matrix per seed, outside data kept apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.collected import collect
from support.eval_rows import NAMES, merged_rows, own_rows, read_back, row

from vlcpctl.core.errors import BadInput
from vlcpctl.report.report import ReportRequest, build

NAN = np.nan


def test_rows_fill_the_matrices(tmp_path: Path) -> None:
    (track,) = collect(read_back(tmp_path / "r", own_rows() + merged_rows()))
    (run,) = track.runs
    own, merged = run.own["rm"][0, 1:-1], run.merged["rm"][0]
    np.testing.assert_array_equal(own, [[60, NAN, NAN], [50, 40, NAN], [40, 42, 30]])
    np.testing.assert_array_equal(merged, [[60, NAN, NAN], [NAN, 44, NAN], [45, 40, 35]])
    assert run.own["t2i_r1"][0, 3, 2] == 15
    assert run.tasks == NAMES[:3]
    assert not run.final_only


def test_a_merged_row_without_task_step_counts_its_tasks(tmp_path: Path) -> None:
    rows = [row(gallery="merged", task="merged", task_step=None, step=1, tasks=["a", "b"])]
    ((run,),) = (track.runs for track in collect(read_back(tmp_path / "r", rows)))
    assert run.merged["rm"][0, 1, 1] == 50
    assert run.tasks == ("a", "b")


def test_data_outside_the_stream_is_transfer(tmp_path: Path) -> None:
    outside = [row(task="coco", task_step=None, step=step, metrics={"rm": 9}) for step in (0, 2)]
    joined = row(gallery="merged", task="merged", task_step=None, tasks=["coco"], step=2)
    (track,) = collect(read_back(tmp_path / "r", [*own_rows(), *outside, joined]))
    (run,) = track.runs
    assert run.tasks == NAMES[:3]
    assert run.galleries == {"own"}
    assert run.outside == ("coco",)
    np.testing.assert_array_equal(run.own["rm"][0, :, 3], [NAN, 9, NAN, 9, NAN])


def test_a_model_before_the_stream_is_the_start(tmp_path: Path) -> None:
    start = [row(step=None, task_step=task, metrics={"rm": 7 + task}) for task in range(3)]
    ((run,),) = (track.runs for track in collect(read_back(tmp_path / "r", start + own_rows())))
    np.testing.assert_array_equal(run.own["rm"][0, 0], [7, 8, 9])


def test_groups_are_those_of_the_papers(tmp_path: Path) -> None:
    rows = own_rows(run="a") + own_rows(run="joint-b")
    rows += own_rows(run="c", buffer={"policy": "ring", "size": "5%"})
    (track,) = collect(read_back(tmp_path / "r", rows))
    assert [(run.group, run.buffer) for run in track.runs] == [
        ("Memory free", None),
        ("Memory buffer", "ring 5%"),
        ("Joint training (upper bound)", None),
    ]


def test_seeds_of_different_methods_are_not_one_run(tmp_path: Path) -> None:
    rows = own_rows() + own_rows(seed=1, method="ewc")
    message = r"'ctp' mixes methods or buffers at step 0: ctp, buffer none .*ewc"
    with pytest.raises(BadInput, match=message):
        collect(read_back(tmp_path / "r", rows))


def test_two_tasks_at_one_place_are_two_streams(tmp_path: Path) -> None:
    rows = [*own_rows(), row(step=2, task_step=0, task="00-other")]
    with pytest.raises(BadInput, match="task 0 of run 'ctp' is '00-other', but '00-smileys'"):
        collect(read_back(tmp_path / "r", rows))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gallery": "mine"}, "gallery is 'mine'"),
        ({"gallery": "merged", "task_step": None}, "must list its tasks"),
        ({"step": 10**9}, ".step`"),
        ({"task_step": -1}, ".task_step`"),
    ],
)
def test_a_damaged_row_is_refused(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=f"r:1: .*{said}"):
        collect(read_back(tmp_path / "r", [row(task="x", **fields)]))


def test_two_rows_of_one_cell_are_refused(tmp_path: Path) -> None:
    rows = merged_rows() + merged_rows(((None,), (None, 50.0)))
    rows[-1] |= {"tasks": ["a", "b"], "metrics": {"acc1": 1.0}}
    said = "r:2 and .*r:6 are both step 1, task 1 of run 'ctp', seed 0 .merged gallery.; remove one"
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
    document = build(read_back(tmp_path / "r", rows), ReportRequest())
    ((_, (table,)),) = document.sections()
    (group,) = table.groups
    assert group.name == "average of 2"
    assert [cell.text for cell in group.rows[0]] == ["ctp", "30.00", "29.00", "28.00"]
