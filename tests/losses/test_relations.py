"""Relations between samples: the parts of all processes add up to the whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.losses.relations import all_relations, cross_relations


@pytest.mark.parametrize("relations", [all_relations, cross_relations])
def test_the_rows_of_all_processes_add_up(relations: Callable[..., Tensor]) -> None:
    draw = torch.Generator().manual_seed(0)
    new, old = (
        tuple(normalize(torch.randn(6, 4, generator=draw), dim=1) for _ in range(2))
        for _ in range(2)
    )
    whole = relations(new, old, now=0.2, then=0.1)
    parts = [relations(new, old, now=0.2, then=0.1, own=one) for one in (slice(4), slice(4, 6))]
    torch.testing.assert_close(sum(parts), whole)
    assert whole > 0
