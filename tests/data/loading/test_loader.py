"""Batches depend on their plan alone: not on workers, on where reading starts, or on the cache."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from vlcpctl.core.batch import Batch, SpecialTokens
from vlcpctl.core.errors import BadInput
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.loading import loader
from vlcpctl.data.loading.loader import (
    ImageCache,
    PlannedBatches,
    WithBufferBatches,
    cache_limit,
    joined,
    piece_count,
    read_batches,
)
from vlcpctl.data.loading.masking import Masking
from vlcpctl.data.loading.order import BatchPlan
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.testing.tiny_stream import make_pair, make_task

VIEW = ImageTransform(image_size=16, mean=(0.5,) * 3, std=(0.5,) * 3, crop="random", flip=True)
STEPS, SIZE = 6, 4
Batches = PlannedBatches | WithBufferBatches

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def lengths(texts: list[str]) -> Tensor:
    """A tokenizer that the tests can look through."""
    return torch.tensor([[len(text), sum(text.encode())] for text in texts])


def plan(step: int) -> BatchPlan:
    rng = np.random.default_rng(step)
    row, source = rng.permutation(8)[:SIZE], rng.integers(0, 2, SIZE)
    return BatchPlan(source=source, row=row, caption=rng.integers(0, 2, SIZE), visit=row + step)


def whole(count: int) -> slice:
    return slice(0, count)


@pytest.fixture
def splits(tmp_path: Path) -> list[Split]:
    def pair(number: int) -> object:
        return make_pair(number, captions=2)

    task = make_task(tmp_path / "task", 8, pair=pair)  # type: ignore[arg-type]
    buffer = make_task(tmp_path / "buffer", 8, first=100, pair=pair)  # type: ignore[arg-type]
    return [open_task(task).split("train"), open_task(buffer).split("train")]


def batches(splits: list[Split], **how: object) -> PlannedBatches:
    given = {"plan": plan, "transform": VIEW, "tokenise": lengths, "seed": 0, "part": whole}
    return PlannedBatches(splits=splits, buffer_source=1, **{**given, **how})  # type: ignore[arg-type]


def read_all(dataset: Batches, first: int, stop: int, workers: int, pieces: int = 1) -> list[Batch]:
    found = read_batches(dataset, first, stop, workers, pieces=pieces)
    return [joined(parts) for parts in found]


def same(one: Batch, other: Batch) -> bool:
    tensors = ("images", "texts", "replayed")
    return one.keys == other.keys and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in tensors
    )


def test_a_batch_is_what_its_plan_says(splits: list[Split]) -> None:
    wanted = plan(2)
    batch = batches(splits)[2]
    pairs = list(zip(wanted.source.tolist(), wanted.row.tolist(), strict=True))
    assert batch.keys == [splits[source].keys[row] for source, row in pairs]
    assert batch.replayed.tolist() == (wanted.source == 1).tolist()
    assert batch.images.shape == (SIZE, 16, 16, 3)
    assert batch.images.dtype == torch.uint8
    texts = [
        splits[source].captions(row)[caption]
        for (source, row), caption in zip(pairs, wanted.caption.tolist(), strict=True)
    ]
    assert torch.equal(batch.texts, lengths(texts))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_change_nothing(splits: list[Split], workers: int) -> None:
    state = torch.random.get_rng_state()
    inline = read_all(batches(splits), 0, STEPS, 0)
    apart = read_all(batches(splits), 0, STEPS, workers)
    assert len(inline) == len(apart) == STEPS
    assert all(same(one, other) for one, other in zip(inline, apart, strict=True))
    assert torch.equal(state, torch.random.get_rng_state())
    late = read_all(batches(splits), 4, STEPS, workers)  # reading can start anywhere
    assert all(same(one, other) for one, other in zip(late, inline[4:], strict=True))
    assert read_all(batches(splits), 3, 3, workers) == []


@pytest.mark.parametrize(("workers", "pieces"), [(0, 2), (2, 3), (3, 4)])
def test_a_batch_in_pieces_is_the_same_batch(
    splits: list[Split], workers: int, pieces: int
) -> None:
    special = SpecialTokens(pad=0, cls=1, sep=2, mask=3, words=500)
    how = {
        "masking": Masking(special, 0.5, seed=0, hides_all=False),
        "groups": [np.arange(8), np.arange(8, 16)],
        "part": lambda count: slice(0, count),
    }
    dataset = WithBufferBatches(batches(splits, **how), batches(splits, seed=1))
    parts = next(read_batches(dataset, 1, 2, 0, pieces=pieces))
    assert [len(part.keys) for part in parts] == [SIZE, *[0] * (pieces - 1)]
    whole_ones = [dataset[step] for step in range(1, STEPS)]
    apart = read_all(dataset, 1, STEPS, workers, pieces)
    for one, other in zip(whole_ones, apart, strict=True):
        assert one.buffer_batch is not None
        assert other.buffer_batch is not None
        assert same(one, other)
        assert same(one.buffer_batch, other.buffer_batch)
        for name in ("masked", "labels", "groups"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_pieces_have_the_targets_of_their_pairs(splits: list[Split]) -> None:
    class Targets:
        seed = 3

        def of(self, *rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.stack(rows, 1).astype(np.float32), np.stack(rows[:1], 1).astype(np.float32)

        def view(self, visit: int) -> int:
            return visit % 2

    dataset = batches(splits, targets=Targets())
    (one,), (other,) = [read_all(dataset, 2, 3, 0, pieces) for pieces in (1, 3)]
    assert one.targets is not None
    assert other.targets is not None
    assert all(map(torch.equal, one.targets, other.targets))


def test_a_piece_has_at_most_the_bytes_of_one() -> None:
    view = replace(VIEW, image_size=224)
    assert piece_count(4, VIEW) == piece_count(222, view) == 1
    count = piece_count(4096, view)
    assert (count - 1) * loader.PIECE_BYTES < 4096 * 224 * 224 * 3 <= count * loader.PIECE_BYTES
    assert piece_count(2, replace(VIEW, image_size=10_000)) == 2


def test_a_part_of_a_batch_has_every_key_and_its_own_images(splits: list[Split]) -> None:
    all_of_it = batches(splits)[1]
    part = batches(splits, part=lambda count: slice(count // 2, count))[1]
    assert part.keys == all_of_it.keys
    assert torch.equal(part.replayed, all_of_it.replayed)
    assert torch.equal(part.images, all_of_it.images[2:])
    assert torch.equal(part.texts, all_of_it.texts[2:])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_is_named(splits: list[Split], workers: int) -> None:
    shard = next(splits[0].directory.glob("train-*.tar"))
    data = bytearray(shard.read_bytes())
    data[512:600] = bytes(88)
    shard.write_bytes(data)
    with pytest.raises(BadInput, match=r"^\S+: the image of key .* match the index .*check --deep"):
        list(read_batches(batches(splits), 0, STEPS, workers))


def test_workers_leave_signals_to_their_parent(splits: list[Split]) -> None:
    dataset = batches(splits, tokenise=_interrupted)
    assert len(list(read_batches(dataset, 0, 2, workers=1))) == 2


def _interrupted(texts: list[str]) -> Tensor:
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    return lengths(texts)


def test_reading_can_move_to_a_process_that_shares_nothing(splits: list[Split]) -> None:
    dataset = batches(splits)
    dataset[0]
    sent = pickle.loads(pickle.dumps(dataset))
    assert same(sent[1], dataset[1])


# The cache


@pytest.mark.parametrize(
    ("images", "rows", "reads", "held"),
    [
        (9, [3, 3], 1, 1),
        (2, [0, 1, 0, 2, 0], 3, 2),  # 2 drives out 1, not 0
        (2, [0, 1, 0, 2, 0, 1], 4, 2),
        (0.1, [0, 1, 1], 2, 1),  # an image larger than the cache stays until the next
        (0, [0, 0, 0], 3, 0),
    ],
)
def test_the_cache_gives_up_what_was_used_longest_ago(
    splits: list[Split],
    monkeypatch: pytest.MonkeyPatch,
    images: float,
    rows: list[int],
    reads: int,
    held: int,
) -> None:
    read, size = _count_reads(splits[0], monkeypatch), 24 * 24 * 4
    cache = ImageCache(limit=int(images * size))
    for row in rows:
        assert cache.get(splits, 0, row).size == (24, 24)
    assert (read(), cache.n_bytes) == (reads, held * size)


def test_an_image_is_cached_only_with_the_scale_of_its_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tmp_path / "jpegs", 4, pair=lambda n: make_pair(n, size=128, kind="JPEG"))
    splits = [open_task(task).split("train")]
    read = _count_reads(splits[0], monkeypatch)
    cache = ImageCache()
    found = [cache.get(splits, 0, 0, lambda size, by=by: by) for by in (2, 2, 1, 4, 4)]
    assert [image.pixels.width for image in found] == [64, 64, 128, 32, 32]
    assert read() == 3
    assert cache.n_bytes == 32 * 32 * 4


@pytest.mark.parametrize("decode", ["exact", "scaled"])
def test_batches_do_not_depend_on_the_cache(tmp_path: Path, decode: str) -> None:
    task = make_task(
        tmp_path / "jpegs", 8, pair=lambda n: make_pair(n, captions=2, size=90, kind="JPEG")
    )
    splits = [open_task(task).split("train")] * 2
    how = {"transform": replace(VIEW, jpeg_decode=decode)}
    with_cache, without = batches(splits, **how), batches(splits, **how, cache=0)
    for step in range(STEPS):
        assert same(with_cache[step], without[step])


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_cache_is_off_where_an_epoch_does_not_fit(
    splits: list[Split], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    image = 24 * 24 * 4
    rows = [np.arange(8), np.array([1, 5])]
    own_share = max(workers, 1)
    monkeypatch.setattr(loader, "CACHE_BYTES", 10 * image * own_share)
    assert cache_limit(splits, rows, VIEW, workers) == 10 * image
    monkeypatch.setattr(loader, "CACHE_BYTES", 10 * image * own_share - 1)
    assert cache_limit(splits, rows, VIEW, workers) == 0


def _count_reads(split: Split, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    rows: list[int] = []
    real = split.image

    def image(row: int) -> bytes:
        rows.append(row)
        return real(row)

    monkeypatch.setattr(split, "image", image)
    return lambda: len(rows)
