"""Reservoir, herding and k-means buffers as the CTP authors' code keeps them (--variant ctp).

Quotas are each rounded on their own, so that the buffer may be a little over or under its size; of
an earlier task the first items in the order of storage stay, which for herding is that of the data
set and not of the picks; the reservoir draws from Python's generator, slot by slot.
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
    """UsageError for a variant that does not exist or does not go with the other options."""
    if variant not in VARIANTS:
        raise UsageError(unknown_name("variant", variant, VARIANTS))
    if variant == CTP and policy not in _POLICIES:
        raise UsageError(
            f"--variant ctp has no effect on --policy {policy}, "
            f"which the CTP authors do not have; it goes with {', '.join(_POLICIES)}"
        )
    if variant == CTP and size.count is None:
        raise UsageError("--variant ctp keeps a number of items: --size 10000, or a share --of N")


def allot_as_ctp(policy: str, count: int, candidates: Candidates, seed: int) -> Allotment:
    """Divide the buffer between what it holds and the new task."""
    if policy == "reservoir":
        return _reservoir(count, candidates, seed)
    return by_quota(rounded(candidates.sizes, count, available(candidates)), candidates)


def pick_as_ctp(policy: str, count: int, features: Callable[[], np.ndarray]) -> np.ndarray:
    """The places of the `count` fresh items to admit, in the order in which they are stored."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if policy == "herding":
        return np.sort(herd_again(features(), count))
    return in_order_of_centroids(features(), count)


def _reservoir(count: int, candidates: Candidates, seed: int) -> Allotment:
    """An item's priority is its slot. Items that the buffer holds already come by and stay."""
    *before, new = candidates.sizes
    slots = algorithm_r(count, sum(before), new, seed)
    places = {row: place for place, row in enumerate(candidates.fresh_rows.tolist())}
    taken = [(slot, places[row]) for slot, row in enumerate(slots.tolist()) if row in places]
    ranks = np.array([slot for slot, _ in taken], dtype=np.int64)
    picked = np.array([place for _, place in taken], dtype=np.int64)
    stays = ~np.isin(candidates.held_priority, ranks)
    return Allotment(stays, len(picked), picked, ranks)
