"""ZSCL's and FoMo-in-Flux's numbers of runs: in tables, gates and facts, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.collected import fact, facts_of
from support.eval_rows import own_rows, read_back, row

from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.report import Document, ReportRequest, build

Rows = list[dict[str, Any]]
WHOLE = ((60.0, 20.0, 10.0), (50.0, 40.0, 20.0), (40.0, 42.0, 30.0))
TITLE = "Metrics of newer benchmarks in rm"


def outside(scores: Sequence[float], name: str = "coco", **fields: Any) -> Rows:
    """Rows on a data set outside the stream, after every step."""
    return [
        row(**{"task": name, "task_step": None, "step": step, "metrics": {"rm": score}} | fields)
        for step, score in enumerate(scores)
    ]


def report(path: Path, rows: Rows, **fields: Any) -> Document:
    return build(read_back(path / "r", rows), ReportRequest(**fields))


def cells(document: Document, title: str = TITLE) -> dict[str, str]:
    (table,) = [one for _, tables in document.sections() for one in tables if one.title == title]
    names = [column.name for column in table.columns]
    return dict(zip(names, [cell.line for cell in table.groups[0].rows[0]], strict=True))


def test_a_run_evaluated_on_all_tasks_has_the_numbers_of_zscl(tmp_path: Path) -> None:
    found = cells(report(tmp_path, own_rows(WHOLE)))
    assert found == {
        "run": "ctp",
        "transfer_zscl": "17.50",
        "avg_zscl": "34.67",
        "own_final": "37.33",
    }


def test_transfer_after_one_task_is_not_defined_yet(tmp_path: Path) -> None:
    rows = own_rows(WHOLE[:1])
    (verdict,) = report(tmp_path, rows, fail_if=["transfer_zscl:lt:5"], undefined="pass").verdicts
    assert (verdict.undefined, verdict.passes) == ("it has one step, and it needs two", True)


def test_retention_is_the_mean_over_data_outside_the_stream(tmp_path: Path) -> None:
    rows = own_rows() + outside([70, 60, 50]) + outside([40, 40, 30], "flickr")
    document = report(tmp_path, rows, fail_if=["zs_fomo:lt:45"])
    assert cells(document)["zs_fomo"] == "40.00"
    assert document.verdicts[0].holds


def test_a_mean_over_data_sets_is_not_counted_beside_them(tmp_path: Path) -> None:
    mean = outside([0, 0, 0], "average of 2", tasks=["coco", "flickr"])
    rows = own_rows() + outside([70, 60, 50]) + outside([40, 40, 30], "flickr") + mean
    assert cells(report(tmp_path, rows))["zs_fomo"] == "40.00"


def test_retention_needs_the_last_model_on_every_data_set(tmp_path: Path) -> None:
    rows = own_rows() + outside([70, 60, 50]) + outside([40, 40], "flickr")
    (run,) = report(tmp_path, rows).tracks[0].runs
    assert run.summary("rm", "zs_fomo") is None
    assert run.why_undefined(DEFINITIONS["zs_fomo"]) == (
        "its last model was not evaluated on all data outside the stream: coco, flickr"
    )
    (run,) = report(tmp_path, own_rows()).tracks[0].runs
    assert run.why_undefined(DEFINITIONS["zs_fomo"]) == (
        "it was not evaluated on data outside the stream"
    )


def test_a_run_with_zero_shot_rows_alone_has_a_retention(tmp_path: Path) -> None:
    """Tasks are pairs, and the data outside of them classes: two tracks."""
    classes = {"evaluator": "zeroshot", "protocol": ""}
    rows = own_rows() + outside([70, 60, 50], "imagenet", **classes)
    rows = [one | {"metrics": {"acc1": 50.0}} if one["task"] == "imagenet" else one for one in rows]
    document = report(tmp_path, rows, fail_if=["zs_fomo.acc1:lt:60"])
    (verdict,) = document.verdicts
    assert (verdict.run, verdict.value, verdict.holds) == ("ctp", 50.0, True)
    assert cells(document, "Metrics of newer benchmarks in acc1")["zs_fomo"] == "50.00"
    assert document.tracks[1].runs == ()
    assert fact(document, "zs_fomo", "acc1")["value"] == 50
    assert not facts_of(document, "own_final", "acc1")
