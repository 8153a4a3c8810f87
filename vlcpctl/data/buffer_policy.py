"""Which items a buffer keeps and which it admits, by each policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.data.buffer_size import Size
from vlcpctl.select.herding import herd
from vlcpctl.select.kmeans import nearest_to_centroids
from vlcpctl.select.order import lowest
from vlcpctl.select.quotas import even, proportional, shares
from vlcpctl.select.reservoir import fixed_count, fixed_share

POLICIES = {
    "reservoir": "a uniform sample of everything seen, whatever the order",
    "ring": "the same number of every task",
    "herding": "of every task in proportion, those that keep its mean feature",
    "kmeans": "of every task in proportion, those nearest to the centres of its clusters",
    "random": "of every task in proportion, at random",
}
NEEDS_FEATURES = ("herding", "kmeans")


@dataclass(frozen=True)
class Candidates:
    """What a policy chooses from: the items held, and those of the new task that are not held.

    `sizes` counts the images of every task seen, the new one last. An item's priority tells when it
    is given up within its task, the lowest last: its rank, or its hash where the policy is random.
    """

    sizes: list[int]
    held_task: np.ndarray  # (N,) place in `sizes`
    held_priority: np.ndarray  # (N,)
    fresh_order: np.ndarray  # (M,) hashes
    fresh_rows: np.ndarray  # (M,) rows of the task


@dataclass(frozen=True)
class Allotment:
    """Which of the held items stay, and how many fresh ones join them.

    Where the policy has settled which ones already, `picked` are their places and `ranks` theirs.
    """

    stays: np.ndarray  # (N,) bool
    admitted: int
    picked: np.ndarray | None = None
    ranks: np.ndarray | None = None


def check_policy(
    policy: str, *, adds: bool, has_checkpoint: bool, stores_features: bool = False
) -> None:
    """UsageError for a policy that does not exist or does not go with the other options."""
    if policy not in POLICIES:
        raise UsageError(unknown_name("policy", policy, POLICIES))
    if adds and policy != "random":
        raise UsageError(f"--add goes with --policy random; --policy {policy} takes --size")
    if policy in NEEDS_FEATURES and not has_checkpoint:
        raise UsageError(f"--policy {policy} looks at features: it needs --checkpoint")
    if stores_features and not has_checkpoint:
        raise UsageError("--store-features needs --checkpoint: the model that features are of")
    if has_checkpoint and not (stores_features or policy in NEEDS_FEATURES):
        raise UsageError(f"--checkpoint has no effect on --policy {policy}; leave it out")


def allot(policy: str, size: Size, candidates: Candidates) -> Allotment:
    """Divide the buffer between what it holds and the new task."""
    if policy == "reservoir":
        return _reservoir(size, candidates)
    quotas = _quotas(policy, size, candidates.sizes, available(candidates))
    return by_quota(quotas, candidates)


def available(candidates: Candidates) -> list[int]:
    """How many items of every task there are to choose from."""
    held = np.bincount(candidates.held_task, minlength=len(candidates.sizes)).tolist()
    return [*held[:-1], len(candidates.fresh_order)]


def by_quota(quotas: list[int], candidates: Candidates) -> Allotment:
    """Of every earlier task the items given up last; of the new one its quota."""
    stays = np.zeros(len(candidates.held_task), dtype=bool)
    for task, quota in enumerate(quotas[:-1]):
        rows = np.flatnonzero(candidates.held_task == task)
        stays[rows[lowest(candidates.held_priority[rows], quota)]] = True
    return Allotment(stays, quotas[-1])


def pick(
    policy: str, count: int, order: np.ndarray, features: Callable[[], np.ndarray], seed: int
) -> np.ndarray:
    """The places of the `count` fresh items to admit, those to be given up last first.

    `features` is called by the policies that look at the items.
    """
    if policy not in NEEDS_FEATURES or count == 0:
        return lowest(order, count)
    if policy == "herding":
        return herd(features(), count)
    return nearest_to_centroids(features(), count, seed)


def _reservoir(size: Size, candidates: Candidates) -> Allotment:
    order = np.concatenate([candidates.held_priority, candidates.fresh_order])
    if size.count is not None:
        chosen = fixed_count(order, size.count)
    else:
        assert size.share is not None
        chosen = fixed_share(order, size.share)
    held = len(candidates.held_priority)
    return Allotment(chosen[:held], int(chosen[held:].sum()))


def _quotas(policy: str, size: Size, sizes: list[int], there: list[int]) -> list[int]:
    if size.add is not None:
        return [*there[:-1], min(size.add, there[-1])]
    if size.share is not None:
        return shares(sizes, size.share, there)
    assert size.count is not None
    if policy == "ring":
        return even(size.count, there)
    return proportional(sizes, size.count, there)
