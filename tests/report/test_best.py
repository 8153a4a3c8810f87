"""--best: the setting with the best metric on the validation split, and only that one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import read_back
from support.sweep_rows import sweep

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.write import write_tables

Rows = list[dict[str, Any]]


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


def report(path: Path, rows: Rows, **options: Any) -> Document:
    return build(read_back(path / "r", rows), ReportRequest(**options))


def names(document: Document) -> list[tuple[str, str]]:
    return [(track.split, run.name) for track in document.tracks for run in track.runs]


def test_the_best_setting_of_each_method_is_reported_on_the_other_split(tmp_path: Path) -> None:
    document = report(tmp_path, SWEEP, group_by=["method,lr"], best="rm")
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
    document = report(tmp_path, SWEEP, best="fr_dha")
    assert names(document) == [("test", "a"), ("test", "d"), ("test", "e")]
    (choice, _) = document.choices
    assert choice.values[0][1] < choice.values[1][1]


def test_a_latex_table_says_above_it_what_was_chosen(tmp_path: Path) -> None:
    document = report(tmp_path, SWEEP, group_by=["method,lr"], best="rm")
    assert write_tables(document, {}, tmp_path / "tex", "latex", force=False)
    text = (tmp_path / "tex/retrieval-forgetting.tex").read_text()
    first = document.choices[0].sentence()
    assert text.startswith(f"% {first}\n% ")
    assert text.index("on the validation split") < text.index("\\begin{table}")
    table = text[text.index("\\begin{table}") :]
    for name, is_there in (("CTP &", 1), ("ewc &", 1), ("joint &", 1), ("lr=", 0), ("Method", 0)):
        assert (name in table) == is_there, name


def test_seeds_of_a_setting_are_averaged_before_it_is_chosen(tmp_path: Path) -> None:
    rows = [*SWEEP, *both("a1", -20.0, 1.0, lr=0.5, seed=1), *both("b1", 2.0, 1.0, lr=0.1, seed=1)]
    rows = [one for one in rows if one["run"] in {"a", "a1", "b", "b1"}]
    document = report(tmp_path, rows, group_by=["method,lr"], best="rm")
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
        report(tmp_path, rows, best=best)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_two_tracks_need_a_selector(tmp_path: Path) -> None:
    other = [one | {"evaluator": "zeroshot", "protocol": ""} for one in SWEEP]
    with pytest.raises(UsageError, match="run 'a' has it more than once: own_final"):
        report(tmp_path, SWEEP + other, best="rm")
    document = report(tmp_path, SWEEP + other, best="rm@evaluator=retrieval")
    assert {run for _, run in names(document)} == {"a", "d", "e"}
