"""Reservoir, herding and k-means buffers that behave as the CTP authors' code (--variant ctp).

It differs from the papers in three ways. Each quota is rounded by itself, so the buffer may be
slightly over or under its size. When an earlier task's quota shrinks, the items stored first stay;
for herding that is data-set order, not the order of selection. The reservoir draws from Python's
`random`, slot by slot.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.data.buffer_policy import Allotment, Candidates, available, by_quota
from vlcpctl.data.buffer_size import Size
from vlcpctl.select.herding import herd_again
from vlcpctl.select.kmeans import in_order_of_centroids
from vlcpctl.select.quotas import rounded
from vlcpctl.select.reservoir import algorithm_r

PAPER, CTP = "paper", "ctp"
VARIANTS = (PAPER, CTP)
_POLICIES = ("reservoir", "herding", "kmeans")


def check_variant(variant: str, policy: str, size: Size) -> None:
    """Raise UsageError if the variant is unknown or cannot be combined with the other options."""
    if variant not in VARIANTS:
        raise UsageError(unknown_name("variant", variant, VARIANTS))
    if variant == CTP and policy not in _POLICIES:
        raise UsageError(
            f"--variant ctp has no effect with --policy {policy}: the CTP authors' code does not "
            f"have it; use one of {', '.join(_POLICIES)}"
        )
    if variant == CTP and size.count is None:
        raise UsageError(
            "--variant ctp needs a number of items; use --size 10000, or --size 5% --of N"
        )


def allot_as_ctp(policy: str, count: int, candidates: Candidates, seed: int) -> Allotment:
    """Divide the buffer of `count` items between the held items and the new task."""
    if policy == "reservoir":
        return _reservoir(count, candidates, seed)
    return by_quota(rounded(candidates.sizes, count, available(candidates)), candidates)


def pick_as_ctp(policy: str, count: int, features: Callable[[], np.ndarray]) -> np.ndarray:
    """(count,) positions of the fresh items to admit, in the order in which they are stored.

    `features` returns the fresh items' (M, D) L2-normalised features; it is called if count > 0.
    """
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if policy == "herding":
        return np.sort(herd_again(features(), count))
    return in_order_of_centroids(features(), count)


def _reservoir(count: int, candidates: Candidates, seed: int) -> Allotment:
    """Replay the authors' slot-by-slot draws; an item's priority is its slot.

    A new row whose key is already in the buffer uses up a draw, but does not evict anything.
    """
    *before, new = candidates.sizes
    slots = algorithm_r(count, sum(before), new, seed)
    places = {row: place for place, row in enumerate(candidates.fresh_rows.tolist())}
    taken = [(slot, places[row]) for slot, row in enumerate(slots.tolist()) if row in places]
    ranks = np.array([slot for slot, _ in taken], dtype=np.int64)
    picked = np.array([place for _, place in taken], dtype=np.int64)
    stays = ~np.isin(candidates.held_priority, ranks)
    return Allotment(stays, len(picked), picked, ranks)
