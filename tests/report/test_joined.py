"""A run's rows are joined: its start comes first, its last checkpoint places and names the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.collected import facts_of, reported, scores_on
from support.eval_rows import NAMES, OWN, current, merged_rows, own_rows, row, start_rows

from vlcpctl.report.page import page
from vlcpctl.report.tables import step_label
from vlcpctl.report.write import markdown


def _imported(names: tuple[str, ...] = NAMES[:3], **fields: Any) -> list[dict[str, Any]]:
    scores = {name: 10.0 + number for number, name in enumerate(names)}
    return start_rows(scores, **{"run": "openai", **fields})


def _trained(**fields: Any) -> list[dict[str, Any]]:
    rows = current(own_rows(**fields) + merged_rows(**fields), start="S")
    return [one | {"metrics": {"rm": one["metrics"]["rm"]}} for one in rows]


def test_an_imported_model_is_the_start_of_the_runs_that_start_from_it(tmp_path: Path) -> None:
    document = reported(tmp_path, _trained() + _trained(run="er") + _imported())
    (track,) = document.tracks
    assert [(run.name, run.of.starts) for run in track.runs] == [
        ("ctp", ("openai",)),
        ("er", ("openai",)),
    ]
    assert not track.others
    for run in track.runs:
        np.testing.assert_array_equal(run.own["rm"][0, 0], [10, 11, 12])
        assert run.summary("rm", "fwt_gem") is None  # no score on a task before learning it


def test_the_start_is_in_every_table_and_chart(tmp_path: Path) -> None:
    document = reported(tmp_path, _trained() + _trained(run="er") + _imported())
    text = markdown(document)
    assert "| *Before the first task* |  |  |  |\n| openai |  | 11.00 |  |\n" in text
    assert text.count("| start | 10.0 | 11.0 | 12.0 |  |") == 2
    shown = page(document)
    assert "Start: the model before the first task, on the first task." in shown
    assert shown.count(">start</text>") == 1  # on the axis of the curves
    assert shown.count('<th scope="row" class="words">start</th>') == 2  # the matrices of the runs
    found = facts_of(document, "score", step="start", run="er")
    assert [one["value"] for one in found] == [10.0, 11.0, 12.0]


def test_a_seed_of_the_start_is_not_a_seed_of_the_run(tmp_path: Path) -> None:
    document = reported(tmp_path, _trained() + _trained(seed=1) + _imported(seed=7))
    ((run,),) = (track.runs for track in document.tracks)
    assert run.seeds == (0, 1)
    assert run.own["rm"][:, 0, 0].tolist() == [10, 10]
    assert "| openai | 11.00 |" in markdown(document)  # one model has no deviation
    alone = [one | {"task_step": number} for number, one in enumerate(_imported())]
    document = reported(tmp_path, alone)
    ((run,),) = (track.runs for track in document.tracks)
    assert (run.name, run.steps) == ("openai", 0)
    assert "| openai |  | 11.00 |" in markdown(document)


def test_a_trained_start_is_a_run_of_its_own_too(tmp_path: Path) -> None:
    about = {"run": "coco", "checkpoint": "S"}
    coco = current([row(task="00-coco", metrics={"rm": 70.0})], **about)
    tasks = [row(task=NAMES[task], task_step=None, metrics={"rm": 5.0}) for task in range(3)]
    transfer = current(
        [row(task="00-coco", task_step=None, step=2, metrics={"rm": 30.0})], start="S"
    )
    (track,) = reported(tmp_path, coco + current(tasks, **about) + _trained() + transfer).tracks
    runs = {run.name: run for run in track.runs}
    assert list(runs) == ["coco", "ctp"]
    np.testing.assert_array_equal(runs["ctp"].own["rm"][0, 0, :3], [5, 5, 5])
    assert scores_on(runs["ctp"], "00-coco") == {-1: 70.0, 2: 30.0}


def test_the_last_checkpoint_places_the_data(tmp_path: Path) -> None:
    """An early checkpoint, evaluated by itself, does not know the tasks that will follow."""
    early = current([row(step=0, task_step=None, task="people", metrics={"rm": 20.0})])
    early = [one | {"data": "data of 01-people"} for one in early]
    rows = [one | {"metrics": {"rm": one["metrics"]["rm"]}} for one in current(own_rows())]
    (track,) = reported(tmp_path, early + rows).tracks
    assert not track.others
    assert track.runs[0].own["rm"][0, 1, 1] == 20


def test_data_outside_the_stream_have_one_name(tmp_path: Path) -> None:
    rows = [
        row(task=name, task_step=None, step=step, data="d", metrics={"rm": 9.0})
        for step, name in ((0, "coco"), (2, "00-coco"))
    ]
    (track,) = reported(tmp_path, current(own_rows()) + current(rows, data="d")).tracks
    assert scores_on(track.runs[0], "00-coco") == {0: 9.0, 2: 9.0}


def test_an_upper_bound_has_the_places_of_the_runs(tmp_path: Path) -> None:
    joint = own_rows((*[()] * 2, OWN[2]), run="joint", method="joint")
    moved = [one | {"task_step": 2 - one["task_step"]} for one in current(joint)]
    (track,) = reported(tmp_path, current(own_rows()) + moved).tracks
    (bound,) = [run for run in track.runs if run.name == "joint"]
    np.testing.assert_array_equal(bound.own["rm"][0, 3], [40, 42, 30])


def test_an_upper_bound_of_runs_with_a_trained_start_is_not_placed_by_that_start(
    tmp_path: Path,
) -> None:
    """COCO is task 0 of the run that made the start, and outside the stream of all others."""
    about = {"run": "coco", "checkpoint": "S"}
    coco = current([row(task="00-coco", metrics={"rm": 70.0})], **about)
    transfer = current(
        [row(task="00-coco", task_step=None, step=2, metrics={"rm": 30.0})], start="S"
    )
    joint = {"run": "joint", "method": "joint", "checkpoint": "J", "step": 2}
    bound = current([row(task="00-coco", task_step=None, metrics={"rm": 60.0})], **joint)
    (track,) = reported(tmp_path, coco + _trained() + transfer + bound).tracks
    (of_joint,) = [one for one in track.every if one.name == "joint"]
    assert scores_on(of_joint, "00-coco") == {2: 60.0}


def _weeks() -> list[dict[str, Any]]:
    """Weekly tasks of separate streams that all have one name, as has the model's own test set."""
    ids = {0: "week 0", 1: "week 1", 2: "week 2", None: "prod"}
    names = {None: "00-part", 0: "00-part", 1: "01-part", 2: "02-part"}
    rows = []
    for step in range(3):
        for task in [None, *range(step + 1)]:
            score = {"rm": 50.0 - step if task is None else 60.0 + task}
            one = row(step=step, task_step=task, task=names[task], metrics=score, tasks=[])
            rows += current([one], data=ids[task], stream=f"stream of {ids[task]}", start="S")
    alone = {"run": "openai", "method": "imported", "checkpoint": "S", "step": None, "config": None}
    return rows + [
        one | alone
        for number, name in enumerate(ids.values())
        for one in current(
            [row(task="00-part", task_step=None, metrics={"rm": 10.0 + number})],
            data=name,
            stream=f"stream of {name}",
        )
    ]


def test_weekly_streams_with_one_name_are_reported_with_the_model_they_start_from(
    tmp_path: Path,
) -> None:
    """The model that was imported knows nothing of the weeks: all four are 00-part to it."""
    rows = _weeks()
    for ordered in (rows, rows[::-1]):
        (track,) = reported(tmp_path, ordered).tracks
        (run,) = track.runs
        assert run.tasks == ("00-part", "01-part", "02-part")
        np.testing.assert_array_equal(run.own["rm"][0, 0, :3], [10, 11, 12])
        assert scores_on(run, "00-part (prod)") == {-1: 13.0, 0: 50.0, 1: 49.0, 2: 48.0}


def test_a_start_with_a_step_has_no_place_in_the_run(tmp_path: Path) -> None:
    """import-checkpoint --step 0: its own test set is not task 0 of the run."""
    rows = [one | {"step": 0, "task_step": 0, "task": "prod"} for one in _imported(("prod",))]
    (track,) = reported(tmp_path, _trained() + rows).tracks
    outside = {one.name: one.outside for one in track.every if one.outside}
    assert outside == {"ctp": ("prod",)}
    assert track.runs[0].name == "ctp"


def test_names_have_the_number_that_the_last_checkpoint_gave_them(tmp_path: Path) -> None:
    """In a run of more than a hundred tasks, numbers have three digits."""
    cells = ((50, 5, "05"), (50, 50, "50"), (150, 50, "050"), (150, 150, "150"))
    rows = [
        row(step=step, task_step=task, task=f"{number}-week", data=f"data {task}")
        for step, task, number in cells
    ]
    ((run,),) = (one.runs for one in reported(tmp_path, rows, allow_missing=True).tracks)
    assert [run.tasks[step] for step in (5, 50, 150)] == ["05-week", "050-week", "150-week"]
    labels = [step_label(run, step) for step in range(len(run.tasks))]
    assert labels == sorted(labels)
    assert (labels[5], labels[6]) == ("005-week", "006 task 6")
