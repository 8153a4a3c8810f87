"""The table that eval-* shows on a terminal."""

from __future__ import annotations

from support.eval_rows import row

from vlcpctl.report.tables import measured_table


def _zeroshot(**fields: object) -> dict[str, object]:
    metrics = {"acc1": 12.345, "acc5": 50.0, "mean_per_class_recall": 12.0}
    return {
        **row(step=0, task_step=0, metrics=metrics),
        "evaluator": "zeroshot",
        "protocol": "",
        "n_images": 80,
        **fields,
    }


def test_rows_are_grouped_by_checkpoint() -> None:
    table = measured_table(
        [_zeroshot(), _zeroshot(seed=3), _zeroshot(step=None), _zeroshot(alpha=0.5), _zeroshot()]
    )
    assert [(group.name, len(group.rows)) for group in table.groups] == [
        ("ctp, after task 0", 2),
        ("ctp, seed 3, after task 0", 1),
        ("ctp, before any task", 1),
        ("ctp, alpha 0.5, after task 0", 1),
    ]


def test_a_metric_that_a_row_lacks_is_a_dash() -> None:
    rows = [_zeroshot(), {**_zeroshot(), "metrics": {"acc1": 1.0}}]
    (group,) = measured_table(rows).groups
    assert [[cell.text for cell in line[1:]] for line in group.rows] == [
        ["12.35", "50.00", "12.00", "80"],
        ["1.00", "-", "-", "80"],
    ]
