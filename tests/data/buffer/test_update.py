"""Buffers on disk: what they keep, that they stand alone, and that the old one is left as it is."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.rewritten import forget_pair

from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.data.buffer import policies
from vlcpctl.data.buffer.policies import BufferSize
from vlcpctl.data.buffer.update import BufferRequest, open_buffer, plan_update, write_buffer
from vlcpctl.data.tasks.task import Split, Task, open_task
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
