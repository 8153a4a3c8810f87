"""Groups of pairs: by image, by caption, through others, across tasks and buffer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.naive_negatives import united

from vlcpctl.data.loading.groups import pair_groups
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_task


def _split(path: Path, rows: Sequence[tuple[int, list[str]]]) -> Split:
    """A split of images by number, with these captions."""

    def pair(number: int) -> Pair:
        image, captions = rows[number]
        return make_pair(number)._replace(image=make_image(image), captions=captions)

    return open_task(make_task(path, len(rows), pair=pair)).split("train")


def _same(groups: Sequence[np.ndarray]) -> list[int]:
    """Each group as the place of its first pair."""
    numbers = np.concatenate(groups).tolist()
    return [numbers.index(number) for number in numbers]


def test_a_group_of_the_same_images_has_the_same_number_anywhere(tmp_path: Path) -> None:
    one = _split(tmp_path / "one", [(0, ["a"]), (1, ["a"]), (2, ["b"])])
    other = _split(tmp_path / "other", [(5, ["x"]), (2, ["q"]), (1, ["y"]), (0, ["y"])])
    first, second = pair_groups([one])[0], pair_groups([other])[0]
    assert first[0] == first[1] == second[2] == second[3]
    assert first[2] == second[1]
    assert len({*first.tolist(), *second.tolist()}) == 3
    # The smallest of the first 63 bits of the images' sha256.
    expected = min(int(digits[:16], 16) >> 1 for digits in one.column("sha256")[:2])
    assert first[0] == expected
    assert first.dtype == np.int64


@pytest.mark.parametrize("at_once", [1 << 16, 7])
def test_random_groups_are_those_found_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(
        "vlcpctl.data.loading.groups._AT_ONCE", at_once
    )  # captions are hashed in parts
    rng = np.random.default_rng(0)
    words = [f"word {number}" for number in range(60)]
    rows = [
        (int(rng.integers(40)), [words[n] for n in rng.choice(60, rng.integers(1, 3), False)])
        for _ in range(40)
    ]
    splits = [_split(tmp_path / "a", rows[:25]), _split(tmp_path / "b", rows[25:])]
    wanted = united([{image, *captions} for image, captions in rows])
    found = _same(pair_groups(splits))
    assert found == [wanted.index(group) for group in wanted]
    assert 5 < len(set(found)) < 35


def test_rows_without_any_have_no_groups(tmp_path: Path) -> None:
    task = open_task(make_task(tmp_path / "task", splits={"train": 2, "val": 0}))
    assert [len(one) for one in pair_groups([task.split("val")])] == [0]
    assert [len(one) for one in pair_groups([task.split("val"), task.split("train")])] == [0, 2]
