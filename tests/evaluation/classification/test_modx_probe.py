"""Batches of Mod-X's probe are full, whatever the parts that they come in."""

from __future__ import annotations

import pytest
import torch

from vlcpctl.evaluation.classification.linear_probe import full_batches


@pytest.mark.parametrize("part", [1, 3, 4, 7, 50])
@pytest.mark.parametrize(
    ("images", "size", "sizes"),
    [(10, 4, [4, 4]), (8, 4, [4, 4]), (3, 4, [3]), (4, 4, [4]), (0, 4, [])],
)
def test_the_rest_of_an_epoch_is_dropped_unless_it_is_all(
    images: int, size: int, sizes: list[int], part: int
) -> None:
    features, labels = torch.arange(2 * images).view(images, 2).float(), torch.arange(images)
    parts = list(zip(features.split(part), labels.split(part), strict=True)) if images else []
    found = list(full_batches(parts, size))
    assert [len(label) for _, label in found] == sizes
    if found:
        assert torch.equal(torch.cat([one for one, _ in found]), features[: sum(sizes)])
        assert torch.equal(torch.cat([one for _, one in found]), labels[: sum(sizes)])
