"""Drops: what a run lost against its start, or against the model of --baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import write_checkpoint_manifest
from support.collected import fact, reported
from support.eval_rows import NAMES, current, outside_rows, own_rows, row, start_rows
from support.rank_files import write_ranks

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.evaluation.rank_files import write_without
from vlcpctl.metrics.recall import recalls
from vlcpctl.report.report import Document, summary
from vlcpctl.report.scores import Drop

Rows = list[dict[str, Any]]


def trained(**fields: Any) -> Rows:
    """Rows of a run on the tasks of its stream."""
    rows = current(own_rows(**fields), start="S")
    return [one | {"metrics": {"rm": one["metrics"]["rm"]}} for one in rows]


def drop_of(document: Document, data: str = "coco", run: str = "ctp", key: str = "rm") -> Drop:
    (found,) = [
        one for one in document.drops if (one.data, one.curve.run.name, one.key) == (data, run, key)
    ]
    return found


WEEKS = [*trained(), *outside_rows([70, 60, 50]), *start_rows({"coco": 80, NAMES[0]: 45})]


def test_a_drop_is_the_start_minus_the_last_model_seed_by_seed(tmp_path: Path) -> None:
    rows = [*WEEKS, *trained(seed=1), *outside_rows([70, 60, 54], seed=1)]
    found = drop_of(reported(tmp_path, rows))
    assert found.baseline
    assert found.last
    assert found.drop
    assert (found.baseline.mean, found.last.values, found.drop.values) == (80, (50, 54), (30, 26))
    assert found.curve.is_guard
    assert found.interval is None


def test_a_task_of_the_stream_has_a_drop_and_is_no_guard(tmp_path: Path) -> None:
    found = drop_of(reported(tmp_path, WEEKS), NAMES[0])
    assert found.drop
    assert (found.drop.mean, found.curve.is_guard) == (5, False)
    judged = reported(tmp_path, WEEKS, fail_if=["drop@data=01-*:gt:9"])
    assert drop_of(judged, NAMES[1]).undefined == ("its baseline was not evaluated on 01-people")


BARE = [*trained(), *outside_rows([7, 6, 5])]


@pytest.mark.parametrize(
    ("rows", "why", "kind"),
    [
        (BARE, "the model that it started from was not evaluated", "Transfer"),
        (
            [one | {"start": None} for one in BARE],
            "it did not start from an imported model; use --baseline",
            "Transfer",
        ),
        (
            [*trained(), *outside_rows([70, 60]), *start_rows({"coco": 80})],
            "its last model (step 2) was not evaluated on coco",
            "Guards",
        ),
    ],
)
def test_a_run_that_lacks_a_side_has_no_drop(
    tmp_path: Path, rows: Rows, why: str, kind: str
) -> None:
    document = reported(tmp_path, rows)
    found = drop_of(document)
    assert (found.drop, found.undefined) == (None, why)
    (tables,) = [tables for _, tables in document.sections()]
    titles = [table.title for table in tables if "outside" in table.title]
    assert titles == [f"{kind}: rm on data outside the stream"]


# --guard


def test_guards_are_narrowed_by_a_pattern(tmp_path: Path) -> None:
    rows = [*WEEKS, *outside_rows([7, 6, 5], "flickr"), *start_rows({"flickr": 8})]
    found = [one.data for one in reported(tmp_path, rows).drops]
    assert found == ["coco", "flickr", NAMES[0]], "guards first"
    document = reported(tmp_path, rows, guards=("co*",))
    assert drop_of(document).curve.is_guard
    assert not drop_of(document, "flickr").curve.is_guard
    (tables,) = [tables for _, tables in document.sections()]
    titles = {table.title: [group.name for group in table.groups] for table in tables}
    assert titles["Guards: rm on data outside the stream"] == ["coco"]
    transfer = next(table for table in tables if table.name == "transfer")
    names = [column.name for column in transfer.columns]
    assert names == ["run", "start", "after 0", "after 1", "after 2"]
    assert [cell.text for cell in transfer.groups[0].rows[0]][1:3] == ["8.00", "7.00"]


# --baseline


def other(**fields: Any) -> Rows:
    """A run that starts elsewhere and ends with 40 on coco."""
    rows = [*trained(run="er"), *outside_rows([60, 50, 40], run="er")]
    return [one | {"start": None, "checkpoint": f"{one['step']}e" * 8} | fields for one in rows]


@pytest.mark.parametrize("is_run", [True, False])
def test_a_baseline_is_a_run_or_the_directory_of_a_checkpoint(tmp_path: Path, is_run: bool) -> None:
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    write_checkpoint_manifest(directory, "2e" * 8)
    name = "er" if is_run else str(directory)
    document = reported(tmp_path, [*WEEKS, *other()], baseline=name)
    found = drop_of(document)
    assert found.baseline
    assert found.drop
    assert (found.baseline.mean, found.drop.mean) == (40, -10)
    assert {one.curve.run.name for one in document.drops} == {"ctp"}  # not the baseline itself
    assert drop_of(document, NAMES[1]).drop is not None
    found = summary(document, {"rows": "x"})["baseline"]
    assert found == {"given": name, "runs": {"ctp": [name]}}
    with pytest.raises(BadInput, match=r"the rows have none of the checkpoint .*\(2e2e2e2e2e2e\)"):
        reported(tmp_path, WEEKS, baseline=str(directory))


def test_a_baseline_has_the_seed_of_the_run_or_stands_for_all(tmp_path: Path) -> None:
    seeds = [*WEEKS, *trained(seed=1), *outside_rows([70, 60, 54], seed=1)]
    second = [
        one | {"seed": 1, "checkpoint": f"{one['step']}f" * 8, "metrics": {"rm": 30.0}}
        for one in other()
    ]
    one_for_all = drop_of(reported(tmp_path, [*seeds, *other()], baseline="er"))
    by_seed = drop_of(reported(tmp_path, [*seeds, *other(), *second], baseline="er"))
    assert one_for_all.drop
    assert by_seed.drop
    assert (one_for_all.drop.values, by_seed.drop.values) == ((-10, -14), (-10, -24))


OF_MERGED = row(gallery="merged", tasks=[NAMES[0]], task="merged", run="er", checkpoint="E")
ELSEWHERE = row(task="other", task_step=None, run="er", checkpoint="E")


@pytest.mark.parametrize(
    ("rows", "name", "error", "said"),
    [
        (other(), "nobody", UsageError, "unknown run 'nobody'"),
        (other(), "a\0b", UsageError, "unknown run"),
        (other(), ".", BadInput, "checkpoint.json"),
        (current([OF_MERGED]), "er", BadInput, "er and the last models .* have no data in common"),
        (current([ELSEWHERE]), "er", BadInput, "er and the last models .* have no data in common"),
    ],
)
def test_a_baseline_that_is_unknown_or_has_no_rows_is_refused(
    tmp_path: Path, rows: Rows, name: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        reported(tmp_path, [*WEEKS, *rows], baseline=name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("field", "value"), [("limit", 10), ("options", {"duplicates": "separate"}), ("data", "new")]
)
def test_a_baseline_that_was_measured_otherwise_is_refused(
    tmp_path: Path, field: str, value: Any
) -> None:
    rows = [one | ({field: value} if one["task"] == "coco" else {}) for one in other()]
    with pytest.raises(BadInput, match=r"r:\d+ and .*r:\d+ cannot share") as caught:
        reported(tmp_path, [*WEEKS, *rows], baseline="er")
    assert str(caught.value).endswith(f"or use --allow-mixed {field}")
    assert reported(tmp_path, [*WEEKS, *rows], baseline="er", allow_mixed=(field,)).drops


# --ranks

BEFORE = ({"a": [1], "b": [1], "c": [1]}, {"a": [1, 1], "b": [1, 1], "c": [1, 1]})
AFTER = ({"a": [1], "b": [20], "c": [3]}, {"a": [1, 7], "b": [20, 20], "c": [1, 1]})


def scores(ways: Any) -> dict[str, float]:
    i2t, t2i = (np.array([one for found in way.values() for one in found]) for way in ways)
    return recalls(i2t, t2i)


def ranked(path: Path, **fields: Any) -> tuple[Rows, list[Path]]:
    """Rows of a start and of a run with one step on coco, and the files of their ranks."""
    about = {"data": "data of coco", "task": "coco", **fields}
    files = [
        write_ranks(path / name, {"i2t": ways[0], "t2i": ways[1]}, checkpoint=name, **about)
        for name, ways in (("S", BEFORE), ("c0", AFTER))
    ]
    rows = [one | {"metrics": scores(AFTER)} for one in outside_rows([0])]
    return rows + [one | {"metrics": scores(BEFORE)} for one in start_rows({"coco": 0})], files


def test_ranks_of_both_models_give_an_interval(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    document = reported(tmp_path, rows, files)
    for key in ("rm", "i2t_r1", "t2i_r10", "i2t_rmean"):
        found = drop_of(document, key=key)
        assert found.drop
        assert found.interval
        assert found.interval.low < found.drop.mean < found.interval.high == 100
    assert not document.notes
    found = fact(document, "drop")
    assert (found["samples"], found["high"]) == (3, 100)
    assert found["se"] > 0


def forgotten(path: Path, *keys: str) -> Path:
    """A file of ranks after `vlcpctl forget` has removed the queries with these keys."""
    write_without(path, path.with_suffix(".new"), keys)
    return path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_ranks_that_are_left_after_a_deletion_give_an_interval(
    tmp_path: Path, which: tuple[int, ...]
) -> None:
    rows, files = ranked(tmp_path)
    wanted = reported(tmp_path, rows, files)
    for number in which:
        forgotten(files[number], "c")
    document = reported(tmp_path, rows, files)
    found = drop_of(document)
    assert found.interval
    assert found.interval.samples == 2
    assert found.drop == drop_of(wanted).drop
    (note,) = document.notes
    assert "'vlcpctl forget' has removed queries from the ranks of 'ctp'" in note


def test_zeroshot_ranks_give_intervals_of_accuracies(tmp_path: Path) -> None:
    protocol = {"evaluator": "zeroshot", "protocol": "all-classes"}
    classes = {"a": "cat", "b": "dog", "c": "dog"}
    ranks = {"S": {"a": [1], "b": [1], "c": [1]}, "c0": {"a": [1], "b": [2], "c": [9]}}
    files = [
        write_ranks(
            *(tmp_path / name, {"i2c": found}, classes),
            **{**protocol, "checkpoint": name, "data": "data of coco"},
        )
        for name, found in ranks.items()
    ]
    metrics = {"S": [100.0, 100.0, 100.0], "c0": [100 / 3, 200 / 3, 50.0]}
    names = ("acc1", "acc5", "mean_per_class_recall")
    rows = [
        one | protocol | {"metrics": dict(zip(names, metrics[one["checkpoint"]], strict=True))}
        for one in [*outside_rows([0]), *start_rows({"coco": 0})]
    ]
    document = reported(tmp_path, rows, files)
    assert all(drop_of(document, key=name).interval for name in names)


@pytest.mark.parametrize(
    ("has_other_scores", "said"),
    [
        (True, "the ranks of 'ctp' on 'coco' do not give the scores"),  # as of another --limit
        (False, "are not of the same queries"),
    ],
)
def test_ranks_that_do_not_belong_are_left_out_with_a_note(
    tmp_path: Path, has_other_scores: bool, said: str
) -> None:
    rows, files = ranked(tmp_path)
    if has_other_scores:
        rows[0]["metrics"] = {"rm": 12.5}
    else:
        renamed = [{f"{key}2": found for key, found in way.items()} for way in AFTER]
        ways = {"i2t": renamed[0], "t2i": renamed[1]}
        files[1] = write_ranks(tmp_path / "x", ways, data="data of coco", task="coco")
    document = reported(tmp_path, rows, files)
    assert drop_of(document).interval is None
    assert said in document.notes[0]
