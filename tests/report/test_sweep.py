"""--group-by: runs with the same settings are one line; --best: the best of each method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.collected import reported
from support.eval_rows import current, own_rows, row
from support.sweep_rows import sweep

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.report.report import Document, summary
from vlcpctl.report.scores import Run
from vlcpctl.report.write import write_tables

Rows = list[dict[str, Any]]

TWO_BY_TWO = [
    *(one for seed in (0, 1) for one in sweep(f"low-{seed}", seed=seed, more=2.0 * seed)),
    *(one for seed in (0, 1) for one in sweep(f"high-{seed}", seed=seed, lr=0.5, more=5.0)),
]


def report(path: Path, rows: Rows, *fields: str, **options: Any) -> Document:
    return reported(path, rows, group_by=fields, **options)


def runs_of(document: Document) -> dict[str, Run]:
    return {run.name: run for run in document.tracks[0].runs}


def test_runs_with_the_same_values_are_one_line_of_their_seeds(tmp_path: Path) -> None:
    document = report(tmp_path, TWO_BY_TWO, "method,lr")
    runs = runs_of(document)
    assert list(runs) == ["ctp, lr=0.1", "ctp, lr=0.5"]
    assert runs["ctp, lr=0.1"].seeds == (0, 1)
    members = summary(document, {"rows": ""})["groups"]
    assert members == {"ctp, lr=0.1": ["low-0", "low-1"], "ctp, lr=0.5": ["high-0", "high-1"]}


def test_the_label_names_what_is_not_the_method(tmp_path: Path) -> None:
    rows = sweep("a", preset="tiny", buffer={"policy": "ring", "size": 9}, hyper={"m": 0.9})
    fields = ["method,preset", "buffer", "m,ctp.m", "steps"]
    rows = [one for one in rows for _ in [0]]
    found = runs_of(report(tmp_path, sweep("b", steps=3) + rows, *fields))
    assert sorted(found) == [
        "ctp, preset=none, buffer=none, m=none, ctp.m=none, steps=3",
        "ctp, preset=tiny, buffer=ring 9, m=0.9, ctp.m=0.9, steps=none",
    ]


@pytest.mark.parametrize(
    ("rows", "field", "runs", "said"),
    [
        (TWO_BY_TWO, "method", (), "differ in lr; add a setting to --group-by"),
        (sweep("a") + sweep("b", lr=9, seed=1), "method", (), "lr is 0.1 .* or add it to --group-"),
        (sweep("a") + sweep("b", more=1.0), "method", (), "differ in no setting; .* with --run"),
        (TWO_BY_TWO, "lrr", (), "no run has a value of 'lrr'"),
        (TWO_BY_TWO, "a,,b", (), "a field is empty"),
        (TWO_BY_TWO, "method", ("x",), "--run: unknown run 'x'"),
    ],
)
def test_what_cannot_be_grouped_is_refused(
    tmp_path: Path, rows: Rows, field: str, runs: tuple[str, ...], said: str
) -> None:
    with pytest.raises((BadInput, UsageError), match=said):
        report(tmp_path, rows, field, runs=runs)


def test_a_selected_run_alone_is_grouped(tmp_path: Path) -> None:
    """Another run has the name of the line."""
    rows = sweep("a") + sweep("ctp", more=9.0)
    (run,) = runs_of(report(tmp_path, rows, "method", runs=["a"])).values()
    assert (run.own["rm"][0, 1, 0], run.seeds) == (60, (0,))
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


def both(run: str, val: float, test: float, **fields: Any) -> Rows:
    """Rows of a run on the validation and on the test split."""
    return [
        *sweep(run, split="val", more=val, **fields),
        *sweep(run, split="test", more=test, **fields),
    ]


# The best on the validation split is not the best on the test split.
SWEEP = [
    *both("a", 5.0, 1.0, lr=0.5),
    *both("b", 2.0, 9.0, lr=0.1),
    *both("c", 1.0, 2.0, method="ewc", lr=0.1),
    *both("d", 3.0, 0.0, method="ewc", lr=0.5),
    *sweep("e", method="joint", more=20.0),
]


def names(document: Document) -> list[tuple[str, str]]:
    return [(track.split, run.name) for track in document.tracks for run in track.runs]


def test_the_best_setting_of_each_method_is_reported_on_the_other_split(tmp_path: Path) -> None:
    document = reported(tmp_path, SWEEP, group_by=["method,lr"], best="rm")
    assert names(document) == [
        ("test", "ctp, lr=0.5"),
        ("test", "ewc, lr=0.5"),
        ("test", "joint, lr=0.1"),
    ]
    first, second = document.notes[:2]
    assert first == (
        "ctp, lr=0.5 was chosen among 2 settings of ctp by own_final.rm on the validation split: "
        "42.33 (ctp, lr=0.5), 39.33 (ctp, lr=0.1)"
    )
    assert second.endswith(": 40.33 (ewc, lr=0.5), 38.33 (ewc, lr=0.1)")


def test_lower_is_better_where_the_definition_says_so(tmp_path: Path) -> None:
    """Both lose the same, of which the higher score loses less in percent."""
    document = reported(tmp_path, SWEEP, best="fr_dha")
    assert names(document) == [("test", "a"), ("test", "d"), ("test", "e")]
    (choice, _) = document.choices
    assert choice.values[0][1] < choice.values[1][1]


def test_a_latex_table_says_above_it_what_was_chosen(tmp_path: Path) -> None:
    document = reported(tmp_path, SWEEP, group_by=["method,lr"], best="rm")
    assert write_tables(document, {}, tmp_path / "tex", "latex", force=False)
    text = (tmp_path / "tex/retrieval-forgetting.tex").read_text()
    first = document.choices[0].sentence()
    assert text.startswith(f"% {first}\n% ")
    assert text.index("on the validation split") < text.index("\\begin{table}")
    table = text[text.index("\\begin{table}") :]
    for name, is_there in (("CTP &", 1), ("ewc &", 1), ("joint &", 1), ("lr=", 0)):
        assert (name in table) == is_there, name


def test_seeds_of_a_setting_are_averaged_before_it_is_chosen(tmp_path: Path) -> None:
    rows = [*SWEEP, *both("a1", -20.0, 1.0, lr=0.5, seed=1), *both("b1", 2.0, 1.0, lr=0.1, seed=1)]
    rows = [one for one in rows if one["run"] in {"a", "a1", "b", "b1"}]
    document = reported(tmp_path, rows, group_by=["method,lr"], best="rm")
    assert names(document) == [("test", "ctp, lr=0.1")]


@pytest.mark.parametrize(
    ("rows", "best", "error", "said"),
    [
        (sweep("a"), "rm", BadInput, "--best rm: the rows have none of the validation split; eval"),
        (sweep("a", split="val"), "rm", BadInput, "the rows have only the validation split"),
        (SWEEP + sweep("f"), "rm", BadInput, "run 'f' has no rows of the validation split"),
        (SWEEP, "rn", UsageError, "--best rn: unknown metric 'rn' (known: "),
        (SWEEP, "rm@data=x", UsageError, "takes a metric over the tasks of a run, without data="),
        (SWEEP, "worst_drop", UsageError, "takes a metric over the tasks of a run"),
        (SWEEP, "rm@run=x", BadInput, "--best rm@run=x: no run matches 'x' (known: a, b, c, d)"),
        (SWEEP, "transfer_zscl", BadInput, "transfer_zscl.rm of run 'a' is undefined on the val"),
    ],
)
def test_what_cannot_be_chosen_is_one_error(
    tmp_path: Path, rows: Rows, best: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as found:
        reported(tmp_path, rows, best=best)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_two_tracks_need_a_selector(tmp_path: Path) -> None:
    other = [one | {"evaluator": "zeroshot", "protocol": ""} for one in SWEEP]
    with pytest.raises(UsageError, match="run 'a' has it more than once: own_final"):
        reported(tmp_path, SWEEP + other, best="rm")
    document = reported(tmp_path, SWEEP + other, best="rm@evaluator=retrieval")
    assert {run for _, run in names(document)} == {"a", "d", "e"}
