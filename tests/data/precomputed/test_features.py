"""Features stored with a buffer: they come back as they were, through every update."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.data.buffer.policies import BufferSize
from vlcpctl.data.buffer.request import BufferRequest
from vlcpctl.data.buffer.update import open_buffer, plan_update, write_buffer
from vlcpctl.data.precomputed.features import (
    FILE,
    IMAGES,
    Project,
    StoredProjections,
    read_features,
)
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.inspection.check_tasks import check_task
from vlcpctl.testing.tiny_stream import make_pair, make_task

WIDTH = 4


def projecting(maker: str, width: int = WIDTH) -> Project:
    """Values that say whose they are: the model, the image, the caption."""

    def project(split: Split, rows: np.ndarray) -> StoredProjections:
        numbers = [int(split.column("source_key")[row]) for row in rows]
        counts = split.caption_counts()[rows]
        model = sum(map(ord, maker))
        image = [[model, number, 0.1, -1][:width] for number in numbers]
        text = [
            [model, number, caption, 1 / 3][:width]
            for number, count in zip(numbers, counts, strict=True)
            for caption in range(count)
        ]
        sides = [np.array(side, dtype=np.float16).reshape(-1, width) for side in (image, text)]
        return StoredProjections(sides[0], sides[1], counts, [maker] * len(rows))

    return project


def update(
    out: Path, task: Path, maker: str, previous: Path | None = None, **options: object
) -> Task:
    width = options.pop("width", WIDTH)
    request = BufferRequest(
        **{
            "task": open_task(task),
            "previous": previous and open_buffer(previous),
            "policy": "ring",
            "size": BufferSize(count=6, text=6),
            "seed": 0,
            "stores_features": True,
            **options,
        }
    )
    write_buffer(out, request, plan_update(request), _unused, projecting(maker, width))
    return open_buffer(out)


def _unused(split: Split, rows: np.ndarray) -> np.ndarray:
    raise AssertionError("a ring looks at no features")


@pytest.fixture
def tasks(tmp_path: Path) -> list[Path]:
    pair = partial(make_pair, captions=2)
    return [
        make_task(tmp_path / f"task{i}", 8, name=f"task {i}", step=i, first=8 * i, pair=pair)
        for i in range(3)
    ]


def rows_of(buffer: Task) -> dict[str, tuple[str, bytes, bytes]]:
    """By key: who made it, the image's values, the captions'."""
    found, keys = read_features(buffer), buffer.split("train").keys
    alone = [found.take([row]) for row in range(len(keys))]
    return {
        key: (one.makers[0], one.image_ND.tobytes(), one.text_TD.tobytes())
        for key, one in zip(keys, alone, strict=True)
    }


def test_what_is_stored_comes_back_under_its_key(tmp_path: Path, tasks: list[Path]) -> None:
    buffer = update(tmp_path / "buffer", tasks[0], "a")
    split, found = buffer.split("train"), read_features(buffer)
    assert found.image_ND.dtype == found.text_TD.dtype == np.float16
    numbers = np.array([int(key) for key in split.column("source_key")])
    np.testing.assert_array_equal(found.image_ND[:, 1], numbers)
    image, text = found.of(np.array([4, 1]), np.array([1, 0]))
    assert image.dtype == text.dtype == np.float32
    np.testing.assert_array_equal(image[:, 1], numbers[[4, 1]])
    np.testing.assert_array_equal(text[:, 1:3], [[numbers[4], 1], [numbers[1], 0]])


def test_earlier_items_keep_the_features_of_their_insertion(
    tmp_path: Path, tasks: list[Path]
) -> None:
    first = update(tmp_path / "b0", tasks[0], "a")
    second = update(tmp_path / "b1", tasks[1], "b", tmp_path / "b0")
    third = update(tmp_path / "b2", tasks[2], "c", tmp_path / "b1")
    before, between, after = rows_of(first), rows_of(second), rows_of(third)
    assert {maker for maker, *_ in after.values()} == {"a", "b", "c"}
    earlier = {**between, **before}
    kept = after.keys() & earlier.keys()
    assert len(kept) == 4
    assert all(after[key] == earlier[key] for key in kept)
    assert rows_of(open_buffer(tmp_path / "b0")) == before
    numbers = [int(key) for key in third.split("train").column("source_key")]
    assert read_features(third).image_ND[:, 1].tolist() == numbers


def test_features_are_in_the_content_id_and_no_features_change_nothing(
    tmp_path: Path, tasks: list[Path]
) -> None:
    plain = update(tmp_path / "plain", tasks[0], "a", stores_features=False)
    assert not (plain.path / FILE).exists()
    one = update(tmp_path / "one", tasks[0], "a")
    other = update(tmp_path / "other", tasks[0], "b")
    again = update(tmp_path / "again", tasks[0], "a")
    assert len({plain.content, one.content, other.content}) == 3
    assert one.content == again.content
    for buffer in (plain, one):
        assert list(check_task(buffer.path, deep=True)) == []


def test_buffers_with_and_without_features_do_not_follow_each_other(
    tmp_path: Path, tasks: list[Path]
) -> None:
    update(tmp_path / "plain", tasks[0], "a", stores_features=False)
    update(tmp_path / "stored", tasks[0], "a")
    with pytest.raises(Incompatible, match="was made without --store-features"):
        update(tmp_path / "out", tasks[1], "b", tmp_path / "plain")
    with pytest.raises(Incompatible, match="was made with --store-features"):
        update(tmp_path / "out", tasks[1], "b", tmp_path / "stored", stores_features=False)
    with pytest.raises(Incompatible, match="stores features with 4 channels, but the checkpoint"):
        update(tmp_path / "out", tasks[1], "b", tmp_path / "stored", width=3)
    assert not (tmp_path / "out").exists()


def test_damage_is_found(tmp_path: Path, tasks: list[Path]) -> None:
    buffer = update(tmp_path / "buffer", tasks[0], "a")
    table = pq.read_table(buffer.path / FILE)

    def problems(*, deep: bool) -> list[str]:
        return list(check_task(buffer.path, deep=deep))

    for other in (
        table.take([1, 0, 2, 3, 4, 5]),
        table.set_column(2, "captions", [[3, 1, 2, 2, 2, 2]]),
    ):
        pq.write_table(other, buffer.path / FILE)
        (said,) = problems(deep=False)
        with pytest.raises(BadInput, match=f"{FILE} does not match the pairs in the index"):
            read_features(buffer)
        assert (said, problems(deep=True)) == (said, [said])
    pq.write_table(table, buffer.path / FILE)
    assert problems(deep=True) == []
    image = np.load(buffer.path / IMAGES)
    np.save(buffer.path / IMAGES, np.nextafter(image, np.float16(9)))
    assert problems(deep=False) == []
    assert "are not those listed" in problems(deep=True)[0]
    with pytest.raises(BadInput, match="are not those listed"):
        read_features(buffer)
