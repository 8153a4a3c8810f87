"""Drops: what a run lost against its start, or against the model of --baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import write_checkpoint_manifest
from support.collected import fact
from support.eval_rows import NAMES, current, own_rows, read_back, row
from support.rank_files import write_ranks

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.evaluation.rank_files import SavedRanks, write_without
from vlcpctl.metrics.recall import recalls
from vlcpctl.report.report import (
    Document,
    Files,
    ReportRequest,
    build,
    facts_csv,
    identity,
    summary,
)
from vlcpctl.report.scores import Drop

Rows = list[dict[str, Any]]


def outside(scores: Sequence[float], name: str = "coco", **fields: Any) -> Rows:
    """Rows of a run after every step on data outside its stream."""
    return [
        one
        for step, score in enumerate(scores)
        for one in current(
            [row(task=name, task_step=None, step=step, metrics={"rm": score}, **fields)], start="S"
        )
    ]


def start(scores: dict[str, float], **fields: Any) -> Rows:
    """Rows of an imported model, evaluated alone."""
    about = {"run": "production", "method": "imported", "checkpoint": "S", "step": None, **fields}
    return [
        one | about | {"config": None}
        for name, score in scores.items()
        for one in current([row(task=name, task_step=None, metrics={"rm": score})])
    ]


def trained(**fields: Any) -> Rows:
    """Rows of a run on the tasks of its stream."""
    rows = current(own_rows(**fields), start="S")
    return [one | {"metrics": {"rm": one["metrics"]["rm"]}} for one in rows]


def report(path: Path, rows: Rows, ranks: Sequence[Path] = (), **fields: Any) -> Document:
    return build(
        read_back(path / "r", rows), ReportRequest(**fields), Files([*map(SavedRanks.open, ranks)])
    )


def drop_of(document: Document, data: str = "coco", run: str = "ctp", key: str = "rm") -> Drop:
    (found,) = [one for one in document.drops if (one.data, one.run, one.key) == (data, run, key)]
    return found


WEEKS = [*trained(), *outside([70, 60, 50]), *start({"coco": 80, NAMES[0]: 45})]


def test_a_drop_is_the_start_minus_the_last_model(tmp_path: Path) -> None:
    found = drop_of(report(tmp_path, WEEKS))
    assert found.baseline
    assert found.last
    assert found.drop
    assert (found.baseline.mean, found.last.mean, found.drop.mean) == (80, 50, 30)
    assert found.is_guard
    assert found.interval is None


def test_a_task_of_the_stream_has_a_drop_and_is_no_guard(tmp_path: Path) -> None:
    found = drop_of(report(tmp_path, WEEKS), NAMES[0])
    assert found.drop
    assert (found.drop.mean, found.is_guard) == (5, False)
    assert drop_of(report(tmp_path, WEEKS), NAMES[1]).undefined == (
        "its baseline was not evaluated on 01-people"
    )


def test_seeds_are_compared_one_by_one_with_one_start(tmp_path: Path) -> None:
    rows = [*WEEKS, *trained(seed=1), *outside([70, 60, 54], seed=1)]
    found = drop_of(report(tmp_path, rows))
    assert found.drop
    assert found.drop.values == (30, 26)


def test_a_last_model_that_was_not_evaluated_is_named(tmp_path: Path) -> None:
    rows = [*trained(), *outside([70, 60]), *start({"coco": 80})]
    found = drop_of(report(tmp_path, rows))
    assert (found.drop, found.undefined) == (
        None,
        "its last model (step 2) was not evaluated on coco",
    )
    (tables,) = [tables for _, tables in report(tmp_path, rows).sections()]
    (guards,) = [table for table in tables if table.title.startswith("Guards")]
    assert guards.notes[1] == f"ctp has no drop: {found.undefined}"


def test_a_seed_that_was_not_evaluated_is_named(tmp_path: Path) -> None:
    rows = [*WEEKS, *trained(seed=1), *outside([70, 60], seed=1)]
    found = drop_of(report(tmp_path, rows))
    assert found.undefined == "its last model (step 2) was not evaluated on coco, seed 1"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([*trained(), *outside([7, 6, 5])], "the model that it started from was not evaluated"),
        (
            [one | {"start": None} for one in [*trained(), *outside([7, 6, 5])]],
            "it did not start from an imported model; use --baseline",
        ),
    ],
)
def test_a_run_without_a_known_start_has_no_drop(tmp_path: Path, rows: Rows, why: str) -> None:
    document = report(tmp_path, rows)
    assert drop_of(document).undefined == why
    (tables,) = [tables for _, tables in document.sections()]
    assert [table.title for table in tables if "outside" in table.title] == [
        "Transfer: rm on data outside the stream"
    ]


def test_the_start_is_not_an_update_of_its_own(tmp_path: Path) -> None:
    """Also not if its import gave it a step."""
    rows = [one | {"step": 0, "task_step": 0} for one in start({"prod": 60})]
    document = report(tmp_path, [*WEEKS[:-1], *rows])
    assert {one.run for one in document.drops} == {"ctp"}


def test_the_last_step_is_that_of_the_run_in_all_protocols(tmp_path: Path) -> None:
    zeroshot = {"evaluator": "zeroshot", "protocol": "all-classes", "metrics": {"acc1": 40.0}}
    rows = [one | zeroshot for one in [*outside([1, 1], "cifar"), *start({"cifar": 1})]]
    found = drop_of(report(tmp_path, [*WEEKS, *rows]), "cifar", key="acc1")
    assert found.undefined == "its last model (step 2) was not evaluated on cifar"


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    rows = [*WEEKS, *outside([7, 6, 5], "flickr"), *start({"flickr": 8})]
    one, other = (
        sorted("".join(facts_csv(report(tmp_path, found))).splitlines())
        for found in (rows, rows[::-1])
    )
    assert one == other


def test_a_run_that_is_selected_keeps_its_baseline(tmp_path: Path) -> None:
    rows = [*WEEKS, *other()]
    for given in (None, "er"):
        document = report(tmp_path, rows, runs=("ctp",), baseline=given)
        assert drop_of(document).drop
        assert {one.run for one in document.drops} == {"ctp"}


# --guard


def test_guards_are_narrowed_by_a_pattern(tmp_path: Path) -> None:
    rows = [*WEEKS, *outside([7, 6, 5], "flickr"), *start({"flickr": 8})]
    document = report(tmp_path, rows, guards=("co*",))
    assert drop_of(document).is_guard
    assert not drop_of(document, "flickr").is_guard
    (tables,) = [tables for _, tables in document.sections()]
    titles = {table.title: [group.name for group in table.groups] for table in tables}
    assert titles["Guards: rm on data outside the stream"] == ["coco"]
    assert "Transfer: rm on data outside the stream" in titles


def test_a_pattern_that_matches_nothing_names_the_known_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--guard: 'flick\*' matches no .* \(known: coco\)"):
        report(tmp_path, WEEKS, guards=("coco", "flick*"))
    with pytest.raises(UsageError, match=r"\(known: none\)"):
        report(tmp_path, trained(), guards=("00-smileys",))


# --baseline


def other(**fields: Any) -> Rows:
    """A run that starts elsewhere and ends with 40 on coco."""
    rows = [*trained(run="er"), *outside([60, 50, 40], run="er")]
    return [one | {"start": None, "checkpoint": f"{one['step']}e" * 8} | fields for one in rows]


@pytest.mark.parametrize("name", ["er", "2e2e2e", "2e" * 8])
def test_a_baseline_is_a_run_or_a_checkpoint(tmp_path: Path, name: str) -> None:
    document = report(tmp_path, [*WEEKS, *other()], baseline=name)
    found = drop_of(document)
    assert found.baseline
    assert found.drop
    assert (found.baseline.mean, found.drop.mean) == (40, -10)
    assert {one.run for one in document.drops} == {"ctp"}  # not the baseline itself
    assert drop_of(document, NAMES[1]).drop is not None
    found = summary(document, {"rows": "x"})["baseline"]
    assert found == {"given": name, "runs": {"ctp": [name]}}


def test_a_baseline_is_the_directory_of_a_checkpoint(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    write_checkpoint_manifest(directory, "2e" * 8)
    found = drop_of(report(tmp_path, [*WEEKS, *other()], baseline=str(directory)))
    assert found.drop
    assert found.drop.mean == -10
    with pytest.raises(BadInput, match=r"the rows have none of the checkpoint .*\(2e2e2e2e2e2e\)"):
        report(tmp_path, WEEKS, baseline=str(directory))


def test_the_start_is_shown_beside_another_baseline(tmp_path: Path) -> None:
    document = report(tmp_path, [*WEEKS, *other()], baseline="er")
    (table,) = [
        table for _, tables in document.sections() for table in tables if "Guards" in table.title
    ]
    assert [column.name for column in table.columns] == [
        *("run", "baseline", "start", "after 0", "after 1", "after 2", "drop")
    ]


def test_a_baseline_has_the_seed_of_the_run_or_stands_for_all(tmp_path: Path) -> None:
    seeds = [*WEEKS, *trained(seed=1), *outside([70, 60, 54], seed=1)]
    second = [
        one | {"seed": 1, "checkpoint": f"{one['step']}f" * 8, "metrics": {"rm": 30.0}}
        for one in other()
    ]
    one_for_all = drop_of(report(tmp_path, [*seeds, *other()], baseline="er"))
    by_seed = drop_of(report(tmp_path, [*seeds, *other(), *second], baseline="er"))
    assert one_for_all.drop
    assert by_seed.drop
    assert (one_for_all.drop.values, by_seed.drop.values) == ((-10, -14), (-10, -24))


def test_a_seed_that_the_baseline_lacks_is_named(tmp_path: Path) -> None:
    seeds = [*WEEKS, *trained(seed=5), *outside([70, 60, 54], seed=5)]
    second = [one | {"seed": 1, "checkpoint": f"{one['step']}f" * 8} for one in other()]
    found = drop_of(report(tmp_path, [*seeds, *other(), *second], baseline="er"))
    assert found.undefined == "its baseline was not evaluated on coco, seed 5"


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("nobody", UsageError, "unknown run 'nobody'"),
        ("2e2e2", UsageError, "at least 6 digits"),  # too short
        ("abcdef", UsageError, "unknown run 'abcdef'"),
        ("1e1e1e", UsageError, "1e1e1e is the start of 2 ids"),
        ("x" * 5000, UsageError, "unknown run"),
        ("a\0b", UsageError, "unknown run"),
        (".", BadInput, "checkpoint.json"),
    ],
)
def test_an_unknown_baseline_is_refused(
    tmp_path: Path, name: str, error: type[Exception], said: str
) -> None:
    rows = [*WEEKS, *other(), *[one | {"run": "t", "checkpoint": "1e1e1e9"} for one in WEEKS[:1]]]
    with pytest.raises(error, match=said) as caught:
        report(tmp_path, rows, baseline=name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_baseline_without_rows_to_compare_is_refused(tmp_path: Path) -> None:
    merged = row(gallery="merged", tasks=[NAMES[0]], task="merged", run="er", checkpoint="E")
    with pytest.raises(BadInput, match=r"er has no rows on the own gallery of any data"):
        report(tmp_path, [*WEEKS, *current([merged])], baseline="er")
    elsewhere = current([row(task="other", task_step=None, run="er", checkpoint="E")])
    with pytest.raises(BadInput, match=r"er and the last models .* have no data in common"):
        report(tmp_path, [*WEEKS, *elsewhere], baseline="er")


@pytest.mark.parametrize(
    ("field", "value"), [("limit", 10), ("options", {"duplicates": "separate"}), ("data", "new")]
)
def test_a_baseline_that_was_measured_otherwise_is_refused(
    tmp_path: Path, field: str, value: Any
) -> None:
    rows = [one | ({field: value} if one["task"] == "coco" else {}) for one in other()]
    with pytest.raises(BadInput, match=r"r:\d+ and .*r:\d+ cannot share") as caught:
        report(tmp_path, [*WEEKS, *rows], baseline="er")
    assert str(caught.value).endswith(f"or use --allow-mixed {field}")
    assert report(tmp_path, [*WEEKS, *rows], baseline="er", allow_mixed=(field,)).drops


def test_new_options_are_in_the_identity_only_if_given(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", WEEKS)
    assert not {"baseline", "guards", "ranks"} & identity(rows, ReportRequest()).keys()
    given = identity(rows, ReportRequest(baseline="er", guards=("b", "a")))
    assert (given["baseline"], given["guards"]) == ("er", ["a", "b"])


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
    rows = [one | {"metrics": scores(AFTER)} for one in outside([0])]
    return rows + [one | {"metrics": scores(BEFORE)} for one in start({"coco": 0})], files


def test_ranks_of_both_models_give_an_interval(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    document = report(tmp_path, rows, files)
    for key in ("rm", "i2t_r1", "t2i_r10", "i2t_rmean"):
        found = drop_of(document, key=key)
        assert found.drop
        assert found.interval
        assert found.interval.low < found.drop.mean < found.interval.high == 100
    assert not document.notes
    found = fact(document, "drop")
    assert (found["samples"], found["high"]) == (3, 100)
    assert found["se"] > 0


def test_one_side_alone_gives_none(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    document = report(tmp_path, rows, files[:1])
    assert drop_of(document).interval is None
    assert drop_of(document).drop


def test_ranks_that_are_not_those_of_the_rows_are_left_out_with_a_note(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    rows[0]["metrics"] = {"rm": 12.5}  # as if the ranks were of another --limit
    document = report(tmp_path, rows, files)
    assert drop_of(document).interval is None
    assert (
        "the ranks of 'ctp' or its baseline on 'coco' do not give the scores" in document.notes[0]
    )


def test_ranks_of_other_data_are_left_out_with_a_note(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path, data="data of another")
    document = report(tmp_path, rows, files)
    assert drop_of(document).interval is None
    (note,) = document.notes
    assert note.startswith("not used: 2 of 2 files of --ranks, without ranks of a baseline")


def test_ranks_of_other_queries_are_left_out_with_a_note(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    renamed = [{f"{key}2": found for key, found in way.items()} for way in AFTER]
    ways = {"i2t": renamed[0], "t2i": renamed[1]}
    files[1] = write_ranks(tmp_path / "x", ways, data="data of coco", task="coco")
    document = report(tmp_path, rows, files)
    assert drop_of(document).interval is None
    assert "are not of the same queries" in document.notes[0]


def forgotten(path: Path, *keys: str) -> Path:
    """A file of ranks after `vlcpctl forget` has removed the queries with these keys."""
    write_without(path, path.with_suffix(".new"), keys)
    return path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_ranks_that_are_left_after_a_deletion_give_an_interval(
    tmp_path: Path, which: tuple[int, ...]
) -> None:
    rows, files = ranked(tmp_path)
    wanted = report(tmp_path, rows, files)
    for number in which:
        forgotten(files[number], "c")
    document = report(tmp_path, rows, files)
    found = drop_of(document)
    assert found.interval
    assert found.interval.samples == 2
    assert found.drop == drop_of(wanted).drop
    (note,) = document.notes
    assert "'vlcpctl forget' has removed queries from the ranks of 'ctp'" in note


def test_ranks_of_which_nothing_is_left_give_none(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    forgotten(files[0], "a", "b", "c")
    assert drop_of(report(tmp_path, rows, files)).interval is None


def test_whole_ranks_are_used_rather_than_what_is_left_of_others(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    (tmp_path / "left").write_bytes(files[0].read_bytes())
    document = report(tmp_path, rows, [forgotten(tmp_path / "left", "c"), *files])
    assert drop_of(document).interval == drop_of(report(tmp_path, rows, files)).interval
    (note,) = document.notes
    assert note.startswith("not used: 1 of 3 files")


def test_ranks_are_in_the_identity_by_content(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path)
    opened = [*map(SavedRanks.open, files)]
    read = read_back(tmp_path / "r", rows)
    assert identity(read, ReportRequest(), Files(opened)) == identity(
        read, ReportRequest(), Files(opened[::-1])
    )
    assert identity(read, ReportRequest(), Files(opened)) != identity(
        read, ReportRequest(), Files(opened[:1])
    )


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
        for one in [*outside([0]), *start({"coco": 0})]
    ]
    document = report(tmp_path, rows, files)
    assert all(drop_of(document, key=name).interval for name in names)
