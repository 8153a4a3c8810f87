"""Loss terms over tokens are divided by the masked tokens of the batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vlcpctl.training.loop.token_terms import TokenTerms


@pytest.mark.parametrize(
    ("labels", "count"), [(None, 1), ([[-100, -100]], 1), ([[-100, 7]], 1), ([[3, 7]], 2)]
)
def test_masked_tokens_are_counted_and_at_least_one(
    labels: list[list[int]] | None, count: int
) -> None:
    run: Any = SimpleNamespace(
        world=SimpleNamespace(size=1),
        position=SimpleNamespace(plan=SimpleNamespace(contrasts=True)),
        settings=SimpleNamespace(mask_share=0.15),
    )
    batch: Any = SimpleNamespace(labels=None if labels is None else torch.tensor(labels))
    assert TokenTerms(run, [], batch)._count() == count
