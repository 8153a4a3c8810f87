"""Buffers on disk: what they keep, that they stand alone, and that the old one is left as it is."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pair_files import rows, write_parquet
from support.rewritten import forget_pair

from vlcpctl.core.errors import BadInput, Incompatible, OutputExists, UsageError
from vlcpctl.data.buffer import policies
from vlcpctl.data.buffer.policies import BufferSize, check_policy, parse_size
from vlcpctl.data.buffer.request import BufferRequest
from vlcpctl.data.buffer.update import open_buffer, plan_update, write_buffer
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream as split_pairs
from vlcpctl.data.tasks.index import BUFFER_SCHEMA
from vlcpctl.data.tasks.task import Split, Task, open_stream, open_task
from vlcpctl.files.finished import already_made
from vlcpctl.files.manifest import read_manifest
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_stream, make_task

TEN = BufferSize(count=10, text=10)


def features(split: Split, rows: np.ndarray) -> np.ndarray:
    """Points on a circle by the number of the image, the same for every call."""
    angles = np.array([int(split.column("source_key")[row]) * 0.7 for row in rows])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def tasks(directory: Path, sizes: list[int]) -> list[Path]:
    firsts = np.cumsum([0, *sizes])
    return [
        make_task(directory / f"task{i}", size, name=f"task {i}", step=i, first=int(first))
        for i, (size, first) in enumerate(zip(sizes, firsts, strict=False))
    ]


def update(out: Path, task: Path, previous: Path | None = None, **options: object) -> Task:
    request = BufferRequest(
        **{
            "task": open_task(task),
            "previous": previous and open_buffer(previous),
            "policy": "reservoir",
            "size": TEN,
            "seed": 0,
            **options,
        }
    )
    write_buffer(out, request, plan_update(request), features)
    assert not list(check(out, deep=True))
    return open_buffer(out)


def chain(directory: Path, paths: list[Path], **options: object) -> Task:
    previous = None
    for number, path in enumerate(paths):
        out = directory / f"buffer{number}"
        update(out, path, previous, **options)
        previous = out
    assert previous is not None
    return open_buffer(previous)


def counts(buffer: Task) -> dict[str, int]:
    return dict(Counter(buffer.split("train").column("task")))


@pytest.mark.parametrize("size", [TEN, BufferSize(share=0.4, text="40%")])
def test_reservoir_in_any_order_is_one_pass_over_the_union(
    tmp_path: Path, size: BufferSize
) -> None:
    parts = tasks(tmp_path, [12, 20, 8])
    whole = update(tmp_path / "whole", make_task(tmp_path / "union", 40), size=size)
    forth = chain(tmp_path / "forth", parts, size=size)
    back = chain(tmp_path / "back", parts[::-1], size=size)
    assert forth.split("train").keys == back.split("train").keys == whole.split("train").keys
    assert forth.content == back.content == whole.content
    assert 0 < back.counts["train"] < 40


QUARTER, FIVE_MORE = BufferSize(share=0.25, text="25%"), BufferSize(add=5, text="+5")


@pytest.mark.parametrize(
    ("policy", "size", "images", "kept"),
    [
        ("ring", TEN, [30, 11, 12], [4, 3, 3]),
        ("ring", QUARTER, [24, 12], [6, 3]),
        ("random", FIVE_MORE, [12, 3, 9], [5, 3, 5]),
        *((policy, TEN, [30, 10], [8, 2]) for policy in ("herding", "kmeans", "random")),
    ],
)
def test_each_task_has_its_quota(
    tmp_path: Path, policy: str, size: BufferSize, images: list[int], kept: list[int]
) -> None:
    buffer = chain(tmp_path, tasks(tmp_path, images), policy=policy, size=size)
    assert counts(buffer) == {f"task {number}": count for number, count in enumerate(kept)}


@pytest.mark.parametrize("policy", ["herding", "kmeans", "random", "ring"])
def test_shrinking_keeps_the_best_and_their_ranks(tmp_path: Path, policy: str) -> None:
    first, second = tasks(tmp_path, [30, 30])
    before = update(tmp_path / "before", first, policy=policy).split("train")
    after = update(tmp_path / "after", second, tmp_path / "before", policy=policy).split("train")
    ranks = dict(zip(before.keys, before.column("rank"), strict=True))
    kept = {
        key: rank
        for key, rank, task in zip(
            after.keys, after.column("rank"), after.column("task"), strict=True
        )
        if task == "task 0"
    }
    assert sorted(kept.values()) == list(range(5))
    assert kept == {key: ranks[key] for key in kept}


def test_size_beyond_the_data_keeps_everything_and_says_so(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path, [4])
    request = BufferRequest(task=open_task(task), previous=None, policy="ring", size=TEN, seed=0)
    assert str(plan_update(request)).endswith("all images so far are kept")
    assert update(tmp_path / "buffer", task).counts == {"train": 4}


def test_pair_that_comes_again_is_held_once(tmp_path: Path) -> None:
    first = make_task(tmp_path / "a", 6, name="a")
    again = make_task(tmp_path / "b", 6, name="b", first=3)
    keys = chain(tmp_path, [first, again]).split("train").keys
    assert len(keys) == len(set(keys)) == 9


def test_buffer_stands_alone_when_tasks_and_older_buffers_are_gone(tmp_path: Path) -> None:
    parts = tasks(tmp_path, [12, 12])
    chain(tmp_path, parts)
    for path in [*parts, tmp_path / "buffer0"]:
        shutil.rmtree(path)
    split = open_buffer(tmp_path / "buffer1").split("train")
    images = [split.image(row) for row in range(len(split))]
    assert len(set(images)) == 10
    assert set(split.column("task")) == {"task 0", "task 1"}


def test_tar_is_linked_while_half_of_it_stays_and_rewritten_below(tmp_path: Path) -> None:
    first, second, third = tasks(tmp_path, [40, 40, 40])
    update(tmp_path / "a", first, policy="ring")
    update(tmp_path / "b", second, tmp_path / "a", policy="ring")
    old = tmp_path / "a" / "train-000000.tar"
    assert (tmp_path / "b" / old.name).samefile(old)  # 5 of 10 stay
    c = update(tmp_path / "c", third, tmp_path / "b", policy="ring")  # 4 of 10, and 3 of 5
    assert not (tmp_path / "c" / old.name).exists()
    assert (tmp_path / "c" / "train-000001.tar").samefile(tmp_path / "b" / "train-000001.tar")
    assert c.manifest.splits["train"].shards == ("train-000001.tar", "train-000002.tar")
    assert c.buffer.shard_rows == {"train-000001.tar": 5, "train-000002.tar": 7}
    assert len({c.split("train").image(row) for row in range(10)}) == 10


def test_where_links_are_impossible_tars_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    first, second = tasks(tmp_path, [12, 2])
    update(tmp_path / "a", first)
    monkeypatch.setattr("os.link", refuse)
    b = update(tmp_path / "b", second, tmp_path / "a")
    shard = "train-000000.tar"
    assert (tmp_path / "b" / shard).read_bytes() == (tmp_path / "a" / shard).read_bytes()
    assert not (tmp_path / "b" / shard).samefile(tmp_path / "a" / shard)
    assert b.counts["train"] == 10


def test_task_seen_before_is_refused(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path, [12])
    update(tmp_path / "a", task)
    with pytest.raises(BadInput, match=r"a was already updated with .*task0"):
        update(tmp_path / "b", task, tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "ring"}, "policy 'reservoir', not 'ring'"),
        ({"seed": 1}, "seed 0, not 1"),
        ({"size": BufferSize(share=0.1, text="10%")}, "'a number of items', not 'a share of every"),
    ],
)
def test_update_must_go_on_as_the_buffer_began(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    first, second = tasks(tmp_path, [12, 12])
    update(tmp_path / "a", first)
    with pytest.raises(Incompatible, match=message):
        update(tmp_path / "b", second, tmp_path / "a", **change)


@pytest.mark.parametrize(
    ("order", "sizes", "said"),
    [
        ((0, 1), (4, 4), None),
        ((0, 2), (4, 4), "was not updated with 01-part-1"),
        ((1, 0), (4, 4), "contains pairs of 01-part-1"),
        ((0, 1), (4, 9), "was smaller"),
        ((0, 1), (6, 9), None),  # it has fewer images because one was forgotten
    ],
)
def test_updates_that_may_not_be_meant_are_told(
    tmp_path: Path, order: tuple[int, int], sizes: tuple[int, int], said: str | None
) -> None:
    stream = sorted(make_stream(tmp_path / "stream", 3, 6).glob("0*"))
    first, second = (BufferSize(count=size, text=size) for size in sizes)
    update(tmp_path / "a", stream[order[0]], policy="ring", size=first)
    if sizes[1] > sizes[0]:
        forget_pair(tmp_path / "a")
    b = update(tmp_path / "b", stream[order[1]], tmp_path / "a", policy="ring", size=second)
    assert len(b.manifest.warnings) == (said is not None)
    assert all(str(said) in one for one in b.manifest.warnings)


def test_damaged_image_is_not_copied_into_a_buffer(tmp_path: Path) -> None:
    (task,) = tasks(tmp_path, [3])
    shard = task / "train-000000.tar"
    data = bytearray(shard.read_bytes())
    data[600] ^= 1
    shard.write_bytes(data)
    with pytest.raises(BadInput, match="does not match the index"):
        update(tmp_path / "a", task)


def _watched_update(out: Path, task: Path, **options: object) -> tuple[list[str], list[int]]:
    """Make a buffer of two items; returns the warnings and the rows that were embedded."""
    embedded: list[int] = []

    def watched(split: Split, rows: np.ndarray) -> np.ndarray:
        embedded.extend(rows.tolist())
        return features(split, rows)

    few = BufferSize(count=2, text="2")
    given = {"task": open_task(task), "previous": None, "size": few, "seed": 0, **options}
    request = BufferRequest(**given)
    plan = plan_update(request)
    write_buffer(out, request, plan, watched)
    return list(plan.warnings), embedded


@pytest.mark.parametrize("policy", ["herding", "kmeans"])
def test_of_many_images_a_random_sample_is_embedded_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(policies, "_CONSIDERED", 12)
    (task,) = tasks(tmp_path, [40])
    warnings, embedded = _watched_update(tmp_path / "buffer", task, policy=policy)
    assert [one.startswith(f"{policy} chooses among 12 of the 40") for one in warnings] == [True]
    assert len(embedded) == len(set(embedded)) == 12
    assert sorted(embedded) != list(range(12))  # not simply the first rows
    kept = set(open_buffer(tmp_path / "buffer").split("train").keys)
    split = open_task(task).split("train")
    assert len(kept) == 2
    assert kept <= {split.keys[row] for row in embedded}
    # The code of the CTP authors considers every image.
    how = {"policy": policy, "variant": "ctp"}
    assert _watched_update(tmp_path / "ctp", task, **how) == ([], list(range(40)))


def test_more_candidates_than_take_hours_must_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "WITHOUT_ASKING", 39)
    (task,) = tasks(tmp_path, [40])
    for how in ({"policy": "herding"}, {"policy": "kmeans", "variant": "ctp"}):
        with pytest.raises(UsageError, match="--candidates 40"):
            _watched_update(tmp_path / "buffer", task, **how)
        out = tmp_path / how["policy"]
        _, embedded = _watched_update(out, task, **how, candidates=40)
        assert sorted(embedded) == list(range(40))
        assert read_manifest(out, "task")["identity"]["candidates"] == 40
    _, embedded = _watched_update(tmp_path / "few", task, policy="herding", candidates=9)
    assert len(embedded) == 9
    for how in ({"policy": "random"}, {"policy": "herding", "variant": "ctp"}):
        with pytest.raises(UsageError, match="--candidates"):
            _watched_update(tmp_path / "buffer", task, **how, candidates=9)
    with pytest.raises(UsageError, match="--candidates 1 is less"):
        _watched_update(tmp_path / "buffer", task, policy="kmeans", candidates=1)


# -- sizes


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return open_task(make_task(tmp_path_factory.mktemp("sizes") / "task", 2))


def test_what_is_written_says_what_is_meant(small: Task) -> None:
    assert parse_size("500", None, None, small) == BufferSize(count=500, text=500)
    assert parse_size("5%", None, None, small) == BufferSize(share=0.05, text="5%")
    assert parse_size("5%", "2000", None, small) == BufferSize(count=100, text="5%", of=2000)
    assert parse_size(None, None, 7, small) == BufferSize(add=7, text="+7")


def test_share_of_the_stream_counts_its_training_images(tmp_path: Path) -> None:
    first = open_stream(make_stream(tmp_path / "stream", tasks=3, n=10, test=2))[0]
    assert parse_size("50%", "stream", None, first) == BufferSize(
        count=15, text="50%", of=30, is_of_stream=True
    )


def test_share_of_the_stream_needs_one(small: Task) -> None:
    with pytest.raises(UsageError, match="is not inside a stream directory"):
        parse_size("50%", "stream", None, small)


REFUSED = [
    *((size, None, None, "--size") for size in ("0", "-3", "1.5", "", "0%", "101%", "nan%")),
    *((size, None, None, "--size") for size in (str(2**63), "9" * 5000)),
    ("5%", str(2**63), None, "--of"),
    (None, None, None, "--size is missing"),
    ("10", "100", None, "--of has no effect"),
    ("10", None, 5, "cannot be combined with --size"),
    ("5%", "zero", None, "--of is 'zero'"),
]


@pytest.mark.parametrize(("size", "of", "add", "said"), REFUSED, ids=range(len(REFUSED)))
def test_sizes_that_are_none_or_contradict_each_other_are_refused(
    small: Task, size: str | None, of: str | None, add: int | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        parse_size(size, of, add, small)


def test_policy_goes_with_its_own_options() -> None:
    for policy, adds, has_checkpoint, word in (
        ("resevoir", False, False, "'reservoir'"),
        ("kmeans", False, False, "--checkpoint"),
        ("ring", False, True, "--checkpoint has no effect"),
        ("ring", True, False, "--policy random"),
    ):
        with pytest.raises(UsageError, match=word):
            check_policy(policy, adds=adds, has_checkpoint=has_checkpoint)


# -- columns that tasks keep from their sources


def week(place: Path, pairs: list[dict[str, Any]], keep: str | None) -> Task:
    source = write_parquet(place.with_suffix(".parquet"), pairs)
    given = {"by": "source", "holdout": "none", "keep_columns": keep}
    split_pairs(SplitOptions(sources=[str(source)], **given), place)
    return open_stream(place)[0]


def request(task: Task, previous: Task | None = None, size: int = 100) -> BufferRequest:
    wanted = BufferSize(count=size, text=str(size))
    return BufferRequest(task=task, previous=previous, policy="reservoir", size=wanted, seed=0)


def updated(out: Path, wanted: BufferRequest) -> Task:
    write_buffer(out, wanted, plan_update(wanted), features=lambda _split, rows: np.ones((1, 1)))
    assert not list(check(out, deep=True))
    return open_buffer(out)


def kept(buffer: Task) -> dict[str, dict[str, list[str]]]:
    """The kept values of each image, by its key in the source."""
    table, columns = buffer.split("train").table, buffer.kept_columns
    return {
        row["source_key"]: {name: row[name] for name in columns}
        for row in table.select(["source_key", *columns]).to_pylist()
    }


def customers(count: int, name: str, first: int = 0) -> list[dict[str, Any]]:
    return [{**row, "customer": name} for row in rows(count, first)]


def test_a_buffer_has_the_columns_of_all_its_tasks(tmp_path: Path) -> None:
    plain = week(tmp_path / "w0", rows(4), None)
    first = week(tmp_path / "w1", customers(4, "ada", 4), "customer")
    second = week(tmp_path / "w2", customers(4, "bob", 8), "date,customer")
    buffer = updated(tmp_path / "b0", request(plain))
    assert buffer.split("train").table.schema.names == BUFFER_SCHEMA.names
    assert buffer.kept_columns == ()
    buffer = updated(tmp_path / "b1", request(first, buffer))
    assert buffer.kept_columns == ("customer",)
    buffer = updated(tmp_path / "b2", request(second, buffer))
    assert buffer.kept_columns == ("customer", "date")
    found = kept(buffer)
    assert len(found) == 12
    assert found["id-0"] == {"customer": [], "date": []}
    assert found["id-4"] == {"customer": ["ada"], "date": []}
    assert found["id-8"] == {"customer": ["bob"], "date": ["2024-09-01"]}
    later = updated(tmp_path / "b3", request(week(tmp_path / "w3", rows(4, 12), None), buffer))
    assert kept(later) == found | {f"id-{n}": {"customer": [], "date": []} for n in range(12, 16)}


def test_a_pair_that_comes_again_has_the_values_of_both_weeks(tmp_path: Path) -> None:
    first = week(tmp_path / "w1", customers(4, "bob"), "customer")
    second = week(tmp_path / "w2", customers(6, "ada"), "customer,date")
    buffer = updated(tmp_path / "b1", request(first))
    found = kept(updated(tmp_path / "b2", request(second, buffer)))
    assert found["id-0"] == {"customer": ["ada", "bob"], "date": ["2024-01-01"]}
    assert found["id-5"] == {"customer": ["ada"], "date": ["2024-06-01"]}


def test_the_same_data_with_other_columns_is_another_buffer(tmp_path: Path) -> None:
    plain = week(tmp_path / "a" / "w", customers(4, "ada"), None)
    keeping = week(tmp_path / "b" / "w", customers(4, "ada"), "customer")
    assert plain.content == keeping.content
    updated(tmp_path / "out", request(plain))
    with pytest.raises(OutputExists, match="kept_columns"):
        already_made(tmp_path / "out", "task", request(keeping).identity(), force=False)
