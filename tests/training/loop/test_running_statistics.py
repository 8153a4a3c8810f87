"""Batch norms count a batch once, in however many parts it is encoded."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from torch import nn

from vlcpctl.training.gradients import RunningStatistics
from vlcpctl.training.run import TrainRun

PARTS = [slice(0, 2), slice(2, 4), slice(4, 6)]


def _norms() -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None))
    made(torch.randn(8, 3))  # values other than the initial ones
    return made


def _after(norms: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    """The buffers after a pass over the batch, which the norms themselves do not keep."""
    before = {name: one.clone() for name, one in norms.named_buffers()}
    norms(batch)
    after = {name: one.clone() for name, one in norms.named_buffers()}
    norms.load_state_dict(before, strict=False)
    return after


@pytest.mark.parametrize("parts", [PARTS, [slice(0, 4), slice(4, 6)]], ids=["even", "uneven"])
def test_parts_count_once_by_their_size(parts: list[slice]) -> None:
    norms, batch = _norms(), torch.randn(6, 3)
    each = [_after(norms, batch[part]) for part in parts for _ in range(part.start, part.stop)]
    statistics = RunningStatistics(norms)
    for part in statistics.averaged(parts):
        norms(batch[part])
    found = dict(norms.named_buffers())
    for name, value in found.items():
        wanted = torch.stack([one[name].double() for one in each]).mean(0)
        torch.testing.assert_close(value.double(), wanted, rtol=1e-6, atol=1e-7)
    assert [norm.num_batches_tracked.item() for norm in norms] == [2, 2]


def test_a_second_pass_normalises_by_its_part_and_counts_nothing() -> None:
    norms, batch = _norms(), torch.randn(6, 3)
    before = {name: one.clone() for name, one in norms.named_buffers()}
    statistics = RunningStatistics(norms)
    with pytest.raises(RuntimeError, match="mat"), statistics.kept():
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert all(norm.track_running_stats for norm in norms)
    with statistics.kept():
        kept = norms(batch)
    assert all(torch.equal(before[name], one) for name, one in norms.named_buffers())
    assert torch.equal(kept, norms(batch))
    assert norms[0].num_batches_tracked == 2


@pytest.mark.parametrize("value", [0.1, 1 / 3])
def test_evaluated_norms_keep_every_bit(value: float) -> None:
    norms = _norms().eval()
    norms[0].running_mean.fill_(value)
    before = {name: one.clone() for name, one in norms.named_buffers()}
    for part in RunningStatistics(norms).averaged(PARTS):
        norms(torch.randn(6, 3)[part])
    assert all(torch.equal(before[name], one) for name, one in norms.named_buffers())


def test_norms_without_statistics_stay_without() -> None:
    norms = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False))
    statistics = RunningStatistics(norms)
    for part in statistics.averaged(PARTS):
        norms(torch.randn(6, 3)[part])
    with statistics.kept():
        norms(torch.randn(6, 3))
    assert not norms[0].track_running_stats


@pytest.mark.parametrize(
    ("images", "micro_batch", "sizes"),
    [
        (6, 2, [2, 2, 2]),
        (10, 4, [4, 4, 2]),
        (9, 4, [4, 3, 2]),
        (5, 2, [2, 3]),
        (3, 2, [3]),
        (2, 1, [1, 1]),
        (7, None, [7]),
    ],
)
def test_no_rest_of_a_batch_is_a_single_image(
    images: int, micro_batch: int | None, sizes: list[int]
) -> None:
    run = Mock(**{"settings.micro_batch": micro_batch})
    parts = TrainRun.parts(run, images)
    assert [part.stop - part.start for part in parts] == sizes
    assert [row for part in parts for row in range(images)[part]] == list(range(images))
