"""Splitting: which pair ends in which task, and that doing it again gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.pair_files import GROUPS, rows, write_parquet, write_tar

from vlcpctl.core.errors import BadInput, TooManySkipped, UsageError
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import describe_plan, make_stream
from vlcpctl.data.tasks.task import Task, open_stream
from vlcpctl.testing.tiny_stream import make_image

Split = Callable[..., list[Task]]


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """Split sources into tmp_path/stream with these options; the tasks."""

    def run(*sources: Path, **options: Any) -> list[Task]:
        given = SplitOptions(sources=[str(source) for source in sources], **options)
        make_stream(given, tmp_path / "stream", force=True)
        return open_stream(tmp_path / "stream")

    return run


def images_of(task: Task) -> int:
    return sum(task.counts.values())


def shas_of(task: Task, name: str) -> set[str]:
    return set(task.split(name).column("sha256")) if name in task.counts else set()


def data_files(directory: Path) -> dict[str, bytes]:
    paths = [*directory.rglob("*.tar"), *directory.rglob("*.parquet")]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_splitting_again_gives_the_same_bytes(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(60))
    contents = []
    for name in ("a", "b"):
        options = SplitOptions(sources=[str(pairs)], by="iid", tasks=3, seed=5)
        contents.append(make_stream(options, tmp_path / name)["content"])
    assert data_files(tmp_path / "a") == data_files(tmp_path / "b") != {}
    assert contents[0] == contents[1]


def test_a_column_makes_tasks_in_order_of_first_appearance(tmp_path: Path, split: Split) -> None:
    pairs = write_parquet(tmp_path / "p.parquet", rows(30))
    tasks = split(pairs, by="column:group")
    assert [task.name for task in tasks] == list(GROUPS)
    assert [task.slug for task in tasks] == ["00-food", "01-travel-places", "02-art"]
    assert [task.step for task in tasks] == [0, 1, 2]
    assert [images_of(task) for task in tasks] == [10, 10, 10]
    turned = split(pairs, by="column:group", order="reverse")
    assert [task.name for task in turned] == list(GROUPS[::-1])
    assert [task.step for task in turned] == [0, 1, 2]


def test_only_some_values_become_tasks_in_the_order_given(tmp_path: Path, split: Split) -> None:
    pairs = write_parquet(tmp_path / "p.parquet", rows(30))
    tasks = split(pairs, by="column:group")
    keys = {task.name: list(task.split("train").keys) for task in tasks}
    first, *_, last = keys
    some = split(pairs, by="column:group", only=f"{last}, {first}")
    assert [task.name for task in some] == [last, first]
    for task in some:
        assert list(task.split("train").keys) == keys[task.name]


def test_all_pairs_can_be_one_task_of_a_given_name(tmp_path: Path, split: Split) -> None:
    weeks = [write_parquet(tmp_path / name, rows(9, 9 * n)) for n, name in enumerate("ab")]
    (task,) = split(*weeks, by="all:week-0003")
    assert (task.name, task.path.name, images_of(task)) == ("week-0003", "00-week-0003", 18)


def test_take_keeps_the_first_pairs_of_each_task(tmp_path: Path, split: Split) -> None:
    tasks = split(
        write_parquet(tmp_path / "p.parquet", rows(30)), by="column:group", take=4, holdout="none"
    )
    assert tasks[0].split("train").column("source_key") == ["id-0", "id-3", "id-6", "id-9"]
    assert tasks[0].manifest.skipped == {"beyond --take": 6}


def test_a_counted_holdout_is_exact_and_leaks_nothing(tmp_path: Path, split: Split) -> None:
    again = [{**row, "caption": "other words", "group": "again"} for row in rows(60)]
    pairs = write_parquet(tmp_path / "p.parquet", rows(60) + again)
    tasks = split(pairs, by="column:group", holdout="test=3,val=2")
    assert [len(shas_of(task, "test")) for task in tasks] == [3] * 4
    assert [len(shas_of(task, "val")) for task in tasks] == [2] * 4
    trained = set().union(*(shas_of(task, "train") for task in tasks))
    held = set().union(*(shas_of(task, name) for task in tasks for name in ("test", "val")))
    assert not trained & held
    dropped = sum(task.manifest.skipped.get("held out in another task", 0) for task in tasks)
    assert sum(images_of(task) for task in tasks) + dropped == 120


def test_a_part_that_stays_empty_is_named_with_the_way_out(
    tmp_path: Path, split: Split, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = write_parquet(tmp_path / "p.parquet", rows(8))
    split(pairs, by="iid", tasks=2, holdout="test=0.001,val=0.9")
    said = capsys.readouterr().err
    assert ("--holdout test=N,val=N" in said, "no val images" in said) == (True, False)
    split(pairs, by="iid", tasks=2, holdout="test=2")
    assert "images in" not in capsys.readouterr().err


def test_small_weeks_hold_out_a_share_and_say_so(
    tmp_path: Path, split: Split, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [
        {**row, "group": f"week {min(number // 30, 2)}"} for number, row in enumerate(rows(61))
    ]
    pairs = write_parquet(tmp_path / "p.parquet", table)
    tasks = split(pairs, by="column:group", holdout="test=5", holdout_most="10%")
    assert [task.counts for task in tasks] == [*[{"train": 27, "test": 3}] * 2, {"train": 1}]
    assert capsys.readouterr().err.count("--holdout-most") == 4  # of each week, and of the last
    found = json.loads((tmp_path / "stream" / "stream.json").read_text())
    assert found["identity"]["holdout_most"] == found["rule"]["holdout_most"] == "10%"


def test_directories_sort_with_any_number_of_tasks(tmp_path: Path, split: Split) -> None:
    table = [{**row, "group": f"week {number}"} for number, row in enumerate(rows(101))]
    tasks = split(write_parquet(tmp_path / "p.parquet", table), by="column:group", holdout="none")
    slugs = [task.slug for task in tasks]
    assert slugs == sorted(slugs) == [task.path.name for task in tasks]
    assert slugs[7] == "007-week-7"


def test_a_pair_may_be_query_and_gallery_at_once(tmp_path: Path, split: Split) -> None:
    pairs = [{**row, "split": side} for row in rows(5) for side in ("query", "gallery", "query")]
    path = write_parquet(tmp_path / "p.parquet", pairs)
    (task,) = split(path, by="source", split_column="split", max_skip="100%")
    assert task.counts == {"query": 5, "gallery": 5}


def test_a_pair_of_named_columns_is_kept_as_it_is(tmp_path: Path, split: Split) -> None:
    pairs = [{"picture": make_image(1), "words": ["one", "", "two\nlines"]}]
    named = {"image_column": "picture", "caption_column": "words", "holdout": "none"}
    (task,) = split(write_parquet(tmp_path / "p.parquet", pairs), **named)
    assert task.split("train").captions(0) == ["one", "two\nlines"]
    assert task.split("train").image(0) == make_image(1)
    assert task.manifest.splits["train"].captions == 2


def test_what_is_skipped_is_counted_and_named(tmp_path: Path, split: Split) -> None:
    pairs = rows(10)
    pairs[2] = {**pairs[2], "image": pairs[2]["image"][:-20]}
    pairs[4] = {**pairs[4], "caption": " "}
    pairs[7] = dict(pairs[6])
    split(write_parquet(tmp_path / "p.parquet", pairs), by="source", max_skip="3")
    lines = (tmp_path / "stream" / "skipped.ndjson").read_text().splitlines()
    named = [json.loads(line) for line in lines]
    found = {(one["file"], one["place"], one["reason"]) for one in named}
    expected = [("row 2", "broken image"), ("row 4", "empty caption"), ("row 7", "duplicate")]
    assert found == {("p.parquet", *one) for one in expected}
    manifest = json.loads((tmp_path / "stream" / "stream.json").read_text())
    assert manifest["skipped"] == {"broken image": 1, "empty caption": 1, "duplicate": 1}


def test_repeats_are_counted_and_are_no_errors(
    tmp_path: Path, split: Split, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = rows(10)
    split(write_parquet(tmp_path / "p.parquet", pairs * 2), by="source", max_skip="0")
    manifest = json.loads((tmp_path / "stream" / "stream.json").read_text())
    assert (manifest["read"], manifest["skipped"]) == (20, {"duplicate": 10})
    assert "10 duplicates skipped" in capsys.readouterr().err
    pairs[2] = {**pairs[2], "image": b"no image"}
    broken = write_parquet(tmp_path / "q.parquet", pairs + rows(10))
    for allowed in ("9%", "0"):  # one of 11 that are no repeats: more than 9 %
        given = SplitOptions(sources=[str(broken)], max_skip=allowed)
        with pytest.raises(TooManySkipped, match=r"q\.parquet, row 2: not a JPEG"):
            make_stream(given, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    split(broken, by="source", max_skip="10%")


def test_a_task_or_a_source_without_pairs_is_named(tmp_path: Path, split: Split) -> None:
    pairs = write_parquet(tmp_path / "p.parquet", rows(3))
    with pytest.raises(BadInput, match="would be empty"):
        split(pairs, by="iid", tasks=5)
    assert list(tmp_path.iterdir()) == [pairs]
    write_tar(tmp_path / "x.tar", {})
    pq.write_table(pq.read_table(pairs)[:0], tmp_path / "x.parquet")
    for name in ("x.tar", "x.parquet"):
        with pytest.raises(BadInput, match=name):
            split(tmp_path / name)


def test_our_own_tars_can_be_split_again(tmp_path: Path, split: Split) -> None:
    (first,) = split(write_parquet(tmp_path / "p.parquet", rows(12)), by="source", holdout="none")
    shards = tmp_path / "again"
    (tmp_path / "stream" / first.slug).rename(shards)
    (shards / "task.json").unlink()
    (second,) = split(shards, by="source", holdout="none")
    assert second.split("train").keys == pq.read_table(shards / "train.parquet")["key"].to_pylist()


# Options that cannot mean anything, and the word to type next.
MISTAKES: list[tuple[dict[str, Any], str]] = [
    *(({"by": by}, word) for by, word in (("column", "column:NAME"), ("colum:g", "did you mean"))),
    *(({"by": by}, word) for by, word in (("iid", "needs --tasks"), ("all:", "all:NAME"))),
    ({"tasks": 3}, "no effect"),
    ({"split_column": "split", "holdout": "test=0.1"}, "no effect"),
    *(({"max_skip": text}, "--max-skip") for text in ("some", "9" * 5000)),
    *(({"shard_size": text}, "256MB") for text in ("big", "\u00b2MB", "9" * 400)),
    ({"shard_size": "9" * 20}, "too large"),
    ({"by": "column:group", "only": "artt"}, "'art'"),
    ({"by": "iid", "tasks": 2, "only": "art"}, "--only"),
    *(({"keep_columns": name}, "rename yours") for name in ("label", "date,rank")),
    *(({"keep_columns": text}, "each name once") for text in ("date,,id", "id,id", "", "\udc80")),
    ({"keep_columns": ",".join(map(str, range(101)))}, "the limit is 100"),
    ({"not_test_images": ("self",)}, "--split-column"),
    ({"image_root": ("/",)}, "--image-root"),
    ({"in_place": True}, "not a tar"),
    ({"class_names": "names"}, "--labels-from"),
    ({"class_names": "names", "labels_from": "group"}, "--labels-from group"),
    ({"templates": "names", "labels_from": "timm:resnet18"}, "--templates"),
    ({"label_column": "b", "labels_from": "a"}, "--label-column"),
    ({"labels_from": "checkpoint:run/00"}, "--class-names"),
    ({"labels_from": "tim:resnet18"}, "'timm'"),
    *(({"labels_from": text}, "timm:MODEL") for text in ("timm:", "timm:resnet18,")),
    ({"labels_from": "checkpoint:a,b"}, "checkpoint:DIR"),
    ({"labels_from": "open_clip:ViT-B-32"}, "WEIGHTS"),
]


@pytest.mark.parametrize(("options", "word"), MISTAKES)
def test_options_that_cannot_mean_anything_are_refused(
    tmp_path: Path, split: Split, options: dict[str, Any], word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        split(write_parquet(tmp_path / "p.parquet", rows(5)), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]


def test_a_dry_run_reads_no_image_and_writes_nothing(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "p.parquet", rows(5))
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps([{"image": "missing.jpg", "caption": "c"}]))
    for source, count in ((pairs, 5), (listed, None)):
        plan = describe_plan(SplitOptions(sources=[str(source)]), tmp_path / "out")
        assert (plan["pairs"], plan["bytes"]) == (count, source.stat().st_size)
    assert sorted(tmp_path.iterdir()) == [listed, pairs]


@pytest.mark.parametrize("limit", [4, 20, 40])
def test_limit_stops_early_in_any_file(tmp_path: Path, split: Split, limit: int) -> None:
    parts = [
        write_parquet(tmp_path / f"{first}.parquet", rows(30)[first : first + 10])
        for first in (0, 10, 20)
    ]
    (task,) = split(*parts, by="all:a", limit=limit)
    assert images_of(task) == min(limit, 30)


def test_labels_that_name_no_classes_are_refused(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlcpctl.data.splitting.writing.MAX_CLASSES", 3)
    with pytest.raises(BadInput, match="--label-column"):
        split(write_parquet(tmp_path / "p.parquet", rows(30)), by="source")
