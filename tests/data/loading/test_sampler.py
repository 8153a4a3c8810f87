"""Which pairs a batch holds: replay, captions, and no key twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.data.loading.sampler import PairSampler
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.training.presets import parse_replay
from vlcpctl.training.settings import Settings


@dataclass
class FakeSplit:
    """An index of keys, each with a number of captions."""

    keys: Keys
    captions_each: list[int]

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, row: int) -> str:
        return self.keys[row]

    def caption_count(self, row: int) -> int:
        return self.captions_each[row]

    def caption_counts(self, rows: np.ndarray) -> np.ndarray:
        return np.array(self.captions_each)[rows]


def _split(first: int, count: int, captions: int = 1) -> FakeSplit:
    keys = Keys.of(f"{number:032x}" for number in range(first, first + count))
    return FakeSplit(keys, [captions] * count)


def _sampling(settings: Settings) -> dict[str, Any]:
    """What the sampler takes of the settings."""
    return {
        "batch_size": settings.batch_size,
        "captions": settings.captions,
        "replay": parse_replay(settings.replay),
    }


def _pairs(
    tasks: list[FakeSplit], buffer: FakeSplit | None = None, **settings: object
) -> PairSampler:
    return PairSampler(tasks, buffer, **_sampling(Settings(**settings)), seed=0)  # type: ignore[arg-type]


def _keys(pairs: PairSampler, step: int) -> list[str]:
    plan = pairs.plan(step)
    return [pairs.splits[s].keys[r] for s, r in zip(plan.source, plan.row, strict=True)]


def test_an_epoch_visits_every_pair_once() -> None:
    pairs = _pairs([_split(0, 12)], batch_size=4)
    seen = [key for step in range(pairs.epoch_steps) for key in _keys(pairs, step)]
    assert sorted(seen) == pairs.splits[0].keys


def test_epochs_differ_and_visits_count_them() -> None:
    pairs = _pairs([_split(0, 12)], batch_size=4)
    assert _keys(pairs, 0) != _keys(pairs, 3)
    assert pairs.plan(3).visit.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("steps", "captions", "replay", "repeats"),
    [
        ((0, 3), 1, "union", False),
        ((4, 6), 1, "union", False),
        ((2, 4), 1, "union", True),
        ((0, 6), 1, "union", True),
        ((0, 3), 2, "union", True),
        ((0, 3), 1, "share=0.5", True),
    ],
)
def test_rows_repeat_in_another_epoch_by_captions_and_by_replay(
    steps: tuple[int, int], captions: int, replay: str, repeats: bool
) -> None:
    buffer = _split(12, 2) if replay != "union" else None
    pairs = _pairs(
        [_split(0, 12 // captions, captions)],
        buffer,
        batch_size=4 // captions,
        captions="all",
        replay=replay,
    )
    found = [
        row
        for step in range(*steps)
        for row in zip(pairs.plan(step).source.tolist(), pairs.plan(step).row.tolist(), strict=True)
    ]
    assert pairs.may_repeat(*steps) == repeats
    assert repeats or len(set(found)) == len(found)


def test_union_shuffles_task_and_buffer_together_with_each_key_once() -> None:
    pairs = _pairs([_split(0, 10)], _split(5, 10), batch_size=5)
    seen = [key for step in range(pairs.epoch_steps) for key in _keys(pairs, step)]
    assert sorted(seen) == [f"{number:032x}" for number in range(15)]
    from_buffer = sum(
        int((pairs.plan(step).source == pairs.buffer_source).sum()) for step in range(3)
    )
    assert from_buffer == 5


def test_share_takes_that_share_of_every_batch_from_the_buffer() -> None:
    pairs = _pairs([_split(0, 12)], _split(100, 7), batch_size=4, replay="share=0.5")
    assert pairs.epoch_steps == 6
    for step in range(20):
        assert (pairs.plan(step).source == pairs.buffer_source).tolist() == [
            False,
            False,
            True,
            True,
        ]


@pytest.mark.parametrize(("new", "replayed"), [(12, 2), (6, 0)])
def test_at_least_a_share_is_replayed(new: int, replayed: int) -> None:
    # Of 12 + 4 pairs a union replays a quarter; of 6 + 4 more than that, so they are shuffled.
    pairs = _pairs([_split(0, new)], _split(100, 4), batch_size=4, replay="least=0.4")
    sizes = {int((pairs.plan(step).source == 1).sum()) for step in range(8)}
    assert (sizes == {replayed}) if replayed else len(sizes) > 1


@pytest.mark.parametrize("replay", ["union", "share=0.5"])
@pytest.mark.parametrize("captions", ["one", "all"])
def test_a_key_never_occurs_twice_in_a_batch(replay: str, captions: str) -> None:
    pairs = _pairs(
        [_split(0, 9, 3), _split(6, 9, 2)],
        _split(3, 8, 2),
        batch_size=4,
        replay=replay,
        captions=captions,
    )
    for step in range(3 * pairs.epoch_steps):
        keys = _keys(pairs, step)
        assert len(set(keys)) == len(keys) == 4


def test_all_captions_are_pairs_of_their_own() -> None:
    pairs = _pairs([_split(0, 8, 3)], batch_size=4, captions="all")
    drawn = {
        (key, int(caption))
        for step in range(pairs.epoch_steps)
        for key, caption in zip(_keys(pairs, step), pairs.plan(step).caption, strict=True)
    }
    assert len(drawn) == 24


def test_one_caption_is_drawn_by_epoch_and_key() -> None:
    pairs = _pairs([_split(0, 40, 4)], batch_size=40)
    first, second = (
        {key: int(c) for key, c in zip(_keys(pairs, e), pairs.plan(e).caption, strict=True)}
        for e in (0, 1)
    )
    assert first != second
    assert set(first.values()) == {0, 1, 2, 3}


def test_a_batch_larger_than_the_task_is_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match=r"--batch-size 20 is larger than the data \(12 pairs\)"):
        _pairs([_split(0, 12)], batch_size=20)


@pytest.mark.parametrize("replay", ["union", "share=0.5"])
def test_limit_takes_the_first_rows_of_each_task_and_the_whole_buffer(replay: str) -> None:
    sampling = _sampling(Settings(batch_size=4, replay=replay))
    pairs = PairSampler([_split(0, 12)], _split(100, 9), **sampling, seed=0, limit=5)  # type: ignore[arg-type,list-item]
    task, buffer = pairs.visited_rows()
    assert task.tolist() == list(range(5))
    assert buffer.tolist() == list(range(9))
