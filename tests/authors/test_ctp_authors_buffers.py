"""Buffers on disk with --variant ctp hold what the CTP authors' runs held after every task.

Where k-means chooses, its centroids depend on FAISS and the machine: there the items that the run
chose of a new task are given, and what is compared is who is given up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import buffer as run

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.data.buffer import policies
from vlcpctl.data.buffer.policies import BufferSize
from vlcpctl.data.buffer.update import BufferRequest, open_buffer, plan_update, write_buffer
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.testing.tiny_stream import make_stream, make_task

GOLDEN = np.load(Path(__file__).parent / "data" / "ctp_buffers.npz")
RUNS = {
    "buffer_ER": ("reservoir", "buffer_features"),
    "buffer_MoF": ("herding", "buffer_features"),
    "buffer_Kmeans": ("kmeans", "buffer_features"),
    "buffer_MoF_equal_sizes": ("herding", "buffer_features_equal"),
    "buffer_MoF_small_first_task": ("herding", "buffer_features_small_first"),
}


def stored(buffer: Task) -> list[list[int]]:
    """Task and row of every item, in the order in which the authors' list has them."""
    split, info = buffer.split("train"), buffer.buffer
    places = {content: place for place, content in enumerate(info.seen)}
    starts = np.cumsum([0, *info.seen.values()])
    found = []
    for key, origin, rank in zip(
        split.column("source_key"), split.column("origin_task"), split.column("rank"), strict=True
    ):
        task = places[origin]
        first = (rank,) if info.policy == "reservoir" else (task, rank)
        found.append((first, [task, int(key) - int(starts[task])]))
    return [item for _, item in sorted(found)]


def update(out: Path, task: Path, previous: Path | None, **options: Any) -> Task:
    request = BufferRequest(
        task=open_task(task),
        previous=previous and open_buffer(previous),
        size=BufferSize(count=20, text=20),
        seed=42,
        variant="ctp",
        policy=options["policy"],
    )
    features = options["features"]
    write_buffer(out, request, plan_update(request), lambda split, rows: features[rows])
    return open_buffer(out)


@pytest.mark.golden
@pytest.mark.parametrize("name", RUNS)
def test_a_chain_of_buffers_is_the_authors(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, inputs = RUNS[name]
    sizes = GOLDEN[f"{name}/sizes"].tolist()
    starts = np.cumsum([0, *sizes]).tolist()
    previous = None
    for step, size in enumerate(sizes):
        task = make_task(
            tmp_path / f"t{step}", size, name=f"t{step}", step=step, first=starts[step]
        )
        expected = GOLDEN[f"{name}/after_task{step}/ids"].tolist()
        chosen = np.array([row for place, row in expected if place == step])
        monkeypatch.setattr(policies, "in_order_of_centroids", lambda *_, rows=chosen: rows)
        features = GOLDEN[f"{inputs}/T{step}"]
        features = features / np.linalg.norm(features, axis=1, keepdims=True)
        out = tmp_path / f"buffer{step}"
        buffer = update(out, task, previous, policy=policy, features=features)
        assert stored(buffer) == expected
        check_facts(buffer, name, step)
        previous = out


def check_facts(buffer: Task, name: str, step: int) -> None:
    """The rest of what was recorded after a task: owners, counts, sizes, what the next one sees."""
    found = stored(buffer)
    after = f"{name}/after_task{step}"
    assert [task for task, _ in found] == GOLDEN[f"{after}/task_of_id"].tolist()
    assert buffer.counts["train"] == int(GOLDEN[f"{after}/unique_ids"]) == len(found)
    counts = np.bincount([task for task, _ in found], minlength=len(GOLDEN[f"{name}/sizes"]))
    assert counts.tolist() == GOLDEN[f"{after}/count_per_task"].tolist()
    sizes = GOLDEN[f"{after}/data_size_list"].tolist()  # the reservoir's run does not keep it
    assert not sizes or list(buffer.buffer.seen.values()) == sizes
    next_one = f"{name}/train_task{step + 1}/memory_ids_seen"
    if next_one in GOLDEN:
        assert found == GOLDEN[next_one].tolist()


def test_equal_tasks_overfill_the_buffer_as_the_authors_do(tmp_path: Path) -> None:
    previous = None
    for step in range(3):
        task = make_task(tmp_path / f"t{step}", 10, name=f"t{step}", first=10 * step)
        out = tmp_path / f"b{step}"
        angles = np.arange(10.0)
        features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        buffer = update(out, task, previous, policy="herding", features=features)
        previous = out
    assert buffer.counts["train"] == 21


def test_a_pair_that_is_held_already_comes_by_and_stays(tmp_path: Path) -> None:
    first = make_task(tmp_path / "t0", 12, name="t0")
    second = make_task(tmp_path / "t1", 12, name="t1", step=1, first=6)
    update(tmp_path / "b0", first, None, policy="reservoir", features=None)
    buffer = update(tmp_path / "b1", second, tmp_path / "b0", policy="reservoir", features=None)
    keys, task_of = buffer.split("train").keys, buffer.split("train").column("task")
    assert len(set(keys)) == len(keys) <= 20
    shared = set(open_task(first).split("train").keys) & set(open_task(second).split("train").keys)
    assert {task for key, task in zip(keys, task_of, strict=True) if key in shared} == {"t0"}
    assert "t1" in task_of


def test_a_buffer_of_one_variant_is_not_continued_with_the_other(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", tasks=2, n=8)
    run(stream / "00-part-0", tmp_path / "b0", size="5", quiet=True)
    with pytest.raises(Incompatible, match="made with variant 'paper', not 'ctp'"):
        run(
            stream / "01-part-1",
            tmp_path / "b1",
            previous=tmp_path / "b0",
            size="5",
            variant="ctp",
            quiet=True,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "5", "policy": "ring"}, "--variant ctp has no effect with --policy ring"),
        ({"add": 5, "policy": "random"}, "no effect with --policy random"),
        ({"size": "50%"}, "needs a number of items"),
        ({"size": "5", "variant": "cpt"}, "did you mean 'ctp'"),
    ],
)
def test_a_variant_that_means_nothing_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    stream = make_stream(tmp_path / "stream", tasks=1, n=8)
    with pytest.raises(UsageError, match=message):
        run(stream / "00-part-0", tmp_path / "b", **{"variant": "ctp", **options})


def test_features_come_for_the_rows_that_are_not_held(tmp_path: Path) -> None:
    asked: list[list[int]] = []

    def features(_split: Split, rows: np.ndarray) -> np.ndarray:
        asked.append(rows.tolist())
        return np.eye(len(rows))

    for step, first in enumerate((0, 6)):
        task = make_task(tmp_path / f"t{step}", 8, name=f"t{step}", step=step, first=first)
        request = BufferRequest(
            task=open_task(task),
            previous=open_buffer(tmp_path / "b0") if step else None,
            policy="herding",
            size=BufferSize(count=20, text=20),
            seed=0,
            variant="ctp",
        )
        write_buffer(tmp_path / f"b{step}", request, plan_update(request), features)
    assert asked == [list(range(8)), list(range(2, 8))]
