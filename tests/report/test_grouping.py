"""--group-by: runs with the same settings are one line, and others are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, own_rows, read_back, row
from support.sweep_rows import sweep

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.scores import Run
from vlcpctl.report.sweep import parse_group_by

Rows = list[dict[str, Any]]

TWO_BY_TWO = [
    *(one for seed in (0, 1) for one in sweep(f"low-{seed}", seed=seed, more=2.0 * seed)),
    *(one for seed in (0, 1) for one in sweep(f"high-{seed}", seed=seed, lr=0.5, more=5.0)),
]


def report(path: Path, rows: Rows, *fields: str, **options: Any) -> Document:
    return build(read_back(path / "r", rows), ReportRequest(group_by=fields, **options))


def runs_of(document: Document) -> dict[str, Run]:
    return {run.name: run for run in document.tracks[0].runs}


def test_runs_with_the_same_values_are_one_line_of_their_seeds(tmp_path: Path) -> None:
    document = report(tmp_path, TWO_BY_TWO, "method,lr")
    runs = runs_of(document)
    assert list(runs) == ["ctp, lr=0.1", "ctp, lr=0.5"]
    assert runs["ctp, lr=0.1"].seeds == (0, 1)
    assert document.notes[0] == "--group-by method,lr: 4 runs in 2 lines"


def test_the_label_names_what_is_not_the_method(tmp_path: Path) -> None:
    rows = sweep("a", preset="tiny", buffer={"policy": "ring", "size": 9}, hyper={"m": 0.9})
    fields = ["method,preset", "buffer", "m,ctp.m", "steps"]
    rows = [one for one in rows for _ in [0]]
    found = runs_of(report(tmp_path, sweep("b", steps=3) + rows, *fields))
    assert sorted(found) == [
        "ctp, preset=none, buffer=none, m=none, ctp.m=none, steps=3",
        "ctp, preset=tiny, buffer=ring 9, m=0.9, ctp.m=0.9, steps=none",
    ]


def test_other_settings_that_differ_in_a_line_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="add lr to --group-by"):
        report(tmp_path, TWO_BY_TWO, "method")


def test_two_runs_of_one_seed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="seed 0; select one of them with --run"):
        report(tmp_path, sweep("a") + sweep("b", more=1.0), "method")
    found = report(tmp_path, sweep("a") + sweep("b", more=1.0), "method", runs=["b"])
    assert runs_of(found)["ctp"].seeds == (0,)


def test_a_selected_run_alone_is_grouped(tmp_path: Path) -> None:
    """Another run has the name of the line."""
    rows = sweep("a") + sweep("ctp", more=9.0)
    (run,) = runs_of(report(tmp_path, rows, "method", runs=["a"])).values()
    assert run.own["rm"][0, 1, 0] == 60


def test_unknown_fields_list_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'lr'"):
        report(tmp_path, TWO_BY_TWO, "lrr")
    with pytest.raises(UsageError, match="a field is empty"):
        parse_group_by(["a,,b"])
    with pytest.raises(UsageError, match="--run: unknown run 'x'"):
        report(tmp_path, TWO_BY_TWO, "method", runs=["x"])


def test_a_run_that_was_not_trained_here_has_no_settings(tmp_path: Path) -> None:
    rows = own_rows(run="old") + sweep("new")
    with pytest.raises(BadInput, match="of run 'old' has no settings: its checkpoint"):
        report(tmp_path, rows, "lr")
    assert list(runs_of(report(tmp_path, own_rows(run="old"), "method"))) == ["ctp"]


def test_the_model_at_the_start_is_that_of_every_line(tmp_path: Path) -> None:
    start = current([row(task="coco", task_step=None, step=None, run="clip", checkpoint="S")])
    start = [one | {"config": None, "method": "imported"} for one in start]
    rows = [one | {"start": "S"} for one in TWO_BY_TWO]
    outside = [
        one | {"task": "coco", "task_step": None, "data": "data of coco"}
        for one in rows
        if one["step"] == one["task_step"] == 2
    ]
    document = report(tmp_path, [*start, *rows, *outside], "lr")
    drops = {
        one.curve.run.name: one.drop
        for one in document.drops
        if one.curve.is_guard and one.key == "rm"
    }
    assert {run: len(drop.values) for run, drop in drops.items() if drop} == {
        "lr=0.1": 2,
        "lr=0.5": 2,
    }
