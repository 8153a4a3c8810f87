"""Each cell of a published table has the one value that its selectors match, or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, merged_rows, own_rows, row
from support.published import column, fill, line

from vlcpctl.core.errors import BadInput
from vlcpctl.report.published.cells import Cell
from vlcpctl.report.scores.summary import Spread

SINCE = {"run": "ctp", "step": 0, "checkpoint": "c0"}


def _angles(image: tuple[int, ...], **fields: Any) -> dict[str, Any]:
    counts = {f"sam_{side}": image for side in ("image", "text")}
    counts |= {f"ram_{side}": image for side in ("image", "text")}
    counts |= {f"imav_{side}": image for side in ("i2t", "t2i")}
    found = row(evaluator="spatial", protocol="angles", step=1, task_step=None, task="pairs")
    return found | {"since": SINCE, "degrees": counts, "metrics": {"sam_image_0_5": 60.0}} | fields


def _rows() -> list[dict[str, Any]]:
    start = [
        row(step=None, task_step=task, checkpoint="s", metrics={"rm": 10.0 + task})
        for task in range(3)
    ]
    outside = [
        row(step=step, task_step=None, task="coco", tasks=["coco"], metrics={"rm": 20.0 + step})
        for step in (0, 1, 2)
    ]
    return [*own_rows(), *merged_rows(), *start, *outside]


def _value(path: Path, select: str, rows: list[dict[str, Any]], **more: Any) -> Any:
    filled = fill(path, [column("cell", select), line("CTP", "ctp", "[1.0]")], rows, **more)
    here = filled.cells[0][0].here
    return getattr(here, "mean", here)


def _means(cells: Sequence[Cell]) -> list[float | None]:
    """The mean of each cell; None for a blank."""
    return [one.here.mean if isinstance(one.here, Spread) else None for one in cells]


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("merged_final.rm", 35.0),
        ("rm", 35.0),
        ("rm@gallery=own", (40 + 42 + 30) / 3),
        ("own_final.rm", (40 + 42 + 30) / 3),
        ("rm@gallery=merged,step=1", 44.0),
        ("rm@gallery=own,step=1", 45.0),
        ("rm@gallery=own,step=start", 11.0),
        ("rm@data=00-*", 40.0),
        ("rm@data=00-*,step=0", 60.0),
        ("rm@data=02-animals,step=start", 12.0),
        ("rm@data=coco", 22.0),
        ("rm@data=coco,step=0", 20.0),
        ("t2i_r1@data=01-*", 21.0),
        ("rm@step=7", None),
        ("rm@data=coco,step=start", None),
        ("rm@data=cifar", None),
        ("acc1", None),
        ("rm@protocol=multi-modal", None),
        ("rm@split=val", None),
        ("rm@method=ctp,evaluator=retrieval,split=test", 35.0),
        ("bwt_gem.rm", -9.0),
        ("drop.rm@data=00-*", -30.0),
        ("config.lr", None),
    ],
)
def test_a_selector_finds_its_value(tmp_path: Path, select: str, value: float | None) -> None:
    assert _value(tmp_path, select, _rows()) == (None if value is None else pytest.approx(value))


def test_seeds_are_averaged_and_a_seed_without_the_value_makes_a_blank(tmp_path: Path) -> None:
    rows = own_rows(seed=0) + [
        one | {"metrics": {"rm": one["metrics"]["rm"] + 2}} for one in own_rows(seed=1)
    ]
    parts = [column("cell", "rm@data=00-*"), line("CTP", "ctp", "[1.0]")]
    here = fill(tmp_path, parts, rows).cells[0][0].here
    assert here == Spread((40.0, 42.0))
    assert fill(tmp_path, parts, rows[:-3]).cells[0][0].here is None


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("rm@data=a,data=b", "data= is given twice"),
        ("degrees.sam_image.9.3", "degrees.sam_image.9.3 is not degrees.MEASURE.LOW.HIGH"),
    ],
)
def test_a_selector_with_a_mistake_is_refused(tmp_path: Path, select: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        _value(tmp_path, select, own_rows())


def test_two_kinds_of_a_metric_are_several_values(tmp_path: Path) -> None:
    rows = own_rows(((1.0,),)) + own_rows(((2.0,),), map_variant="ctp")
    with pytest.raises(BadInput, match=r"column cell matches several values \(1\.0, 2\.0\)"):
        _value(tmp_path, "rm@data=00-*", rows)


def test_a_summary_of_one_task_needs_a_later_one(tmp_path: Path) -> None:
    found = [
        _value(tmp_path, f"bwt_gem.rm@data=0{task}-*", own_rows()) for task in range(3)
    ]  # the last was learned last
    assert found == [-20.0, 2.0, None]


def test_merged_scores_of_the_model_at_the_start_are_blank(tmp_path: Path) -> None:
    assert _value(tmp_path, "rm@gallery=merged,step=start", _rows()) is None


def test_seeds_that_start_from_several_models_have_no_row_of_the_start(tmp_path: Path) -> None:
    about = {"schema": "vlcpctl.eval/1.1", "options": {}}
    rows = []
    for seed in range(2):
        start = {"run": f"clip-{seed}", "method": "imported", "checkpoint": f"s{seed}"}
        rows.append(row(step=None, **start) | about | {"data": "d0"})
        rows.append(row(seed=seed, start=f"s{seed}") | about | {"data": "d0"})
    parts = [
        column("x", "rm@data=00-*"),
        line("CLIP", "clip-0", '[""]'),
        line("CTP", "ctp", '[""]'),
    ]
    first, second = fill(tmp_path, parts, rows).cells
    assert second[0].here is not None
    assert first[0].here is None


def test_rows_that_disagree_about_their_data_are_not_the_papers(tmp_path: Path) -> None:
    """One seed was evaluated on fewer images."""
    rows = current(own_rows(seed=0)) + current(own_rows(seed=1), n_images=40)
    parts = [column("x", "rm@data=00-*", counts="{ n_images = 50 }"), line("CTP", "ctp", "[1.0]")]
    filled = fill(tmp_path, parts, rows, paper_data=True, allow_mixed=("counts",))
    assert filled.cells[0][0].other == (("n_images", 40, 50),)
    assert filled.difference(0, 0) is None


def test_angles_are_found_by_their_steps(tmp_path: Path) -> None:
    rows = [
        *own_rows(),
        _angles((30, 30, 40)),
        _angles((90, 0, 10), step=2, checkpoint="c2", since={**SINCE, "step": 1}),
    ]
    assert _value(tmp_path, "degrees.sam_image.0.1@step=1", rows) == 30.0
    assert _value(tmp_path, "degrees.ram_text.1.3@since=1", rows) == 10.0
    assert _value(tmp_path, "sam_image_0_5@step=2,since=1", rows) == 60.0
    assert _value(tmp_path, "degrees.sam_image.0.1@since=start", rows) is None
    with pytest.raises(
        BadInput, match=r"column cell matches 2 steps \(1, 2\); select one with ste"
    ):
        _value(tmp_path, "degrees.sam_image.0.1", rows)


def test_a_setting_is_that_of_the_last_step_and_selects(tmp_path: Path) -> None:
    rows = current(own_rows())
    for one in rows:
        lr = 0.1 if one["step"] < 2 else 0.01
        one["config"] = {"id": str(lr), "values": {"settings": {"lr": lr}}}
    assert _value(tmp_path, "config.lr", rows) == "0.01"
    assert _value(tmp_path, "config.lr@step=0", rows) == "0.1"
    assert _value(tmp_path, "config.momentum", rows) is None
    assert _value(tmp_path, "own_final.rm@config.lr=0.01", rows) is not None
    assert _value(tmp_path, "own_final.rm@config.lr=0.1", rows) is None


@pytest.mark.parametrize(
    ("select", "run", "message"),
    [
        ("rm@data=0*", "ctp", "matches 3 data sets (00-smileys, 01-people, 02-animals); select"),
        ("rm", "*", "matches 2 runs (ctp, er); use --run, or select one with run= in the table"),
        ("map_1", "ctp", "matches 2 protocols (cross-modal, multi-modal)"),
    ],
)
def test_several_values_are_refused(tmp_path: Path, select: str, run: str, message: str) -> None:
    rows = own_rows() + own_rows(run="er")
    for one in list(rows):
        one["metrics"]["map_1"] = 1.0
        if one["run"] == "ctp":
            rows.append(one | {"protocol": "multi-modal", "metrics": {"map_1": 2.0}})
    with pytest.raises(BadInput) as found:
        fill(tmp_path, [column("cell", select), line("A row", run, "[1.0]")], rows)
    assert f"table mine, row 'A row', column cell {message}" in str(found.value)


def test_selectors_of_the_table_give_way_and_those_of_the_row_add_up(tmp_path: Path) -> None:
    parts = [
        'select = "data=00-*"',
        column("a", "rm"),
        column("b", "rm@data=01-*"),
        column("c", "own_final.rm"),
        line("all", "ctp", '["", "", ""]'),
        line("last", "ctp", '["", "", ""]', select='"data=02-*"'),
    ]
    first, second = fill(tmp_path, parts, own_rows()).cells
    assert _means(first[:2]) == [40.0, 42.0]
    assert first[2].here is not None  # a summary takes no data=
    assert _means(second[:2]) == [30.0, None]  # of data that match both patterns there are none


def test_a_model_that_runs_start_from_is_a_row_by_its_name(tmp_path: Path) -> None:
    start = [
        row(run="clip", method="imported", step=None, task_step=None, task=f"0{n}", checkpoint="s")
        | {
            "metrics": {"rm": 10.0 + n},
            "data": f"d{n}",
            "options": {},
            "schema": "vlcpctl.eval/1.1",
        }
        for n in range(2)
    ]
    trained = [
        row(step=step, task_step=task, start="s", task=f"0{task}", metrics={"rm": 50.0})
        | {"data": f"d{task}", "options": {}, "schema": "vlcpctl.eval/1.1"}
        for step, task in ((0, 0), (1, 0), (1, 1))
    ]
    parts = [
        column("mean", "own_final.rm"),
        column("first", "rm@data=00"),
        line("CLIP", "clip", '["", ""]'),
        line("CTP", "ctp", '["", ""]'),
    ]
    cells = fill(tmp_path, parts, [*start, *trained]).cells
    assert _means(cells[0]) == [10.5, 10.0]
    assert _means(cells[1]) == [50.0, 50.0]


def test_a_difference_needs_the_papers_data(tmp_path: Path) -> None:
    rows = current(own_rows() + merged_rows())  # each has 50 images
    parts = [
        column("same", "rm@gallery=merged", counts="{ n_images = 50 }"),
        column("other", "rm@gallery=merged", counts="{ n_images = 5000 }"),
        column("sum", "own_final.rm", counts="{ n_images = 150 }"),
        line("CTP", "ctp", "[30.0, 30.0, 30.0]"),
        line("LwF", "", "[30.0, 30.0, 30.0]"),
        line("EWC", "ewc", "[30.0, 30.0, 30.0]"),
    ]
    without = fill(tmp_path, parts, rows)
    assert {without.difference(row_, place) for row_ in range(3) for place in range(3)} == {None}
    filled = fill(tmp_path, parts, rows, paper_data=True)
    assert filled.difference(0, 0) == 5.0
    assert filled.difference(0, 1) is None
    assert filled.cells[0][1].other == (("n_images", 50, 5000),)
    assert filled.difference(0, 2) == pytest.approx(112 / 3 - 30)
    assert {filled.difference(row_, place) for row_ in (1, 2) for place in range(3)} == {None}
    assert filled.missing_runs == ("ewc",)


def test_means_are_those_of_the_cells_here(tmp_path: Path) -> None:
    rows = own_rows() + own_rows(run="er")
    parts = [
        column("a", "rm@data=00-*"),
        column("b", "rm@data=01-*"),
        column("mean", "", mean_of='["a", "b"]'),
        line("CTP", "ctp", "[1.0, 2.0, 1.5]"),
        line("LwF", "lwf", "[1.0, 2.0, 1.5]"),
        line("ER", "er", "[1.0, 2.0, 1.5]"),
        line("Average", "", "[1.0, 2.0, 1.5]", mean_of='["CTP", "ER"]'),
        line("Broken", "", "[1.0, 2.0, 1.5]", mean_of='["CTP", "LwF"]'),
    ]
    cells = fill(tmp_path, parts, rows).cells
    assert _means([one[2] for one in cells]) == [41.0, None, 41.0, 41.0, None]


def test_rows_of_any_shape_leave_cells_blank(tmp_path: Path) -> None:
    shapes = [
        [row(step=None, task_step=None, metrics={}) | {"metrics": {"acc1": 1.0}}],
        [_angles((1,))],
        own_rows(((1.0,),)),
        merged_rows(((1.0,),)),
        [row(step=3, metrics={"rm": None, "acc1": 2.0})],
    ]
    selects = ["rm", "fr_dha.rm", "drop.rm", "rm@step=2", "rm@data=x", "config.lr"]
    selects += ["degrees.sam_image.0.5@since=0", "merged_final.rm", "own_final.acc1"]
    parts = [column(f"c{place}", select) for place, select in enumerate(selects)]
    printed = str([1.0] * len(selects))
    parts += [line("CTP", "ctp", printed), line("other", "other", printed)]
    for rows in shapes:
        filled = fill(tmp_path, parts, rows, paper_data=True)
        assert all(cell.here is None for cell in filled.cells[1])


def test_a_run_of_which_only_other_data_were_evaluated_has_a_number_on_them(tmp_path: Path) -> None:
    other = [
        row(run="er", step=step, task_step=None, metrics={"rm": 5.0 + step}) for step in (0, 1)
    ]
    parts = [column("x", "zs_fomo.rm"), line("ER", "er", "[1.0]")]
    filled = fill(tmp_path, parts, own_rows() + other)
    assert _means(filled.cells[0]) == [6.0]


def test_only_runs_with_the_selected_gallery_count(tmp_path: Path) -> None:
    parts = [column("x", "rm@gallery=merged"), line("all", "*", "[1.0]")]
    filled = fill(tmp_path, parts, own_rows(run="er") + own_rows() + merged_rows())
    assert _means(filled.cells[0]) == [35.0]


def test_steps_that_a_column_and_a_row_select_must_agree(tmp_path: Path) -> None:
    parts = [
        column("x", "rm@gallery=own,step=1"),
        line("same", "ctp", "[1.0]", select='"step=1"'),
        line("other", "ctp", "[1.0]", select='"step=0"'),
    ]
    (same,), (other,) = fill(tmp_path, parts, own_rows()).cells
    assert _means([same, other]) == [45.0, None]
