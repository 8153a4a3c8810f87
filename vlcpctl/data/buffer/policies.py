"""Buffer policies: how many items each task may have, and which are admitted and evicted.

With --variant ctp, reservoir, herding and k-means behave as the CTP authors' code, which
differs from the papers in three ways. Each quota is rounded by itself, so the buffer may be
slightly over or under its size. When an earlier task's quota shrinks, the items stored first
stay; for herding that is data-set order, not the order of selection. The reservoir draws from
Python's `random`, slot by slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.words import parse_number
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.task import Task
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.select.herding import herd, herd_again
from vlcpctl.select.kmeans import in_order_of_centroids, nearest_to_centroids
from vlcpctl.select.order import lowest
from vlcpctl.select.quotas import even, proportional, rounded, shares
from vlcpctl.select.reservoir import algorithm_r, fixed_count, fixed_share

POLICIES = {
    "reservoir": "a uniform sample of all images seen, independent of their order",
    "ring": "the same number of images from every task",
    "herding": "in proportion to task size, images that preserve the task's mean feature",
    "kmeans": "in proportion to task size, images nearest to the task's cluster centres",
    "random": "in proportion to task size, images drawn at random",
}
NEEDS_FEATURES = ("herding", "kmeans")

PAPER, CTP = "paper", "ctp"
VARIANTS = (PAPER, CTP)
_CTP_POLICIES = ("reservoir", "herding", "kmeans")

_CONSIDERED, _CONSIDERED_PER_ITEM = 50_000, 5  # see `most_considered`
WITHOUT_ASKING = 300_000  # items; choosing among more takes hours
FeaturesAt = Callable[[np.ndarray], np.ndarray]  # (K,) positions to (K, D), L2-normalised


@dataclass(frozen=True)
class BufferCandidates:
    """The items a policy chooses from: N held ones, and the M of the new task that are not held.

    Within a task the items with the highest priority value are evicted first. The value is the
    item's rank where the policy ranks items by features, and its hash otherwise.
    """

    sizes: list[int]  # images of every task seen, the new one last
    held_task: np.ndarray  # (N,) index into `sizes`
    held_priority: np.ndarray  # (N,)
    fresh_order: np.ndarray  # (M,) hashes in [0, 1)
    fresh_rows: np.ndarray  # (M,) rows of the task


@dataclass(frozen=True)
class Allotment:
    """Which of the held items stay, and how many fresh items are admitted.

    `picked` and `ranks` are set only if the policy chooses the fresh items at the same time.
    """

    stays: np.ndarray  # (N,) bool
    admitted: int
    picked: np.ndarray | None = None  # (admitted,) positions among the fresh items
    ranks: np.ndarray | None = None  # (admitted,) their ranks


def check_policy(
    policy: str, *, adds: bool, has_checkpoint: bool, stores_features: bool = False
) -> None:
    """Raise UsageError if the policy is unknown or cannot be combined with the other options."""
    if policy not in POLICIES:
        raise UsageError(unknown_name("policy", policy, POLICIES))
    if adds and policy != "random":
        raise UsageError(f"--add works only with --policy random; use --size with {policy}")
    if policy in NEEDS_FEATURES and not has_checkpoint:
        raise UsageError(f"--policy {policy} needs --checkpoint, the model that computes features")
    if stores_features and not has_checkpoint:
        raise UsageError("--store-features needs --checkpoint, the model that computes features")
    if has_checkpoint and not (stores_features or policy in NEEDS_FEATURES):
        raise UsageError(
            f"--checkpoint has no effect with --policy {policy}: it uses no features; "
            "leave it out, or add --store-features"
        )


def allot(
    policy: str, variant: str, size: BufferSize, candidates: BufferCandidates, seed: int
) -> Allotment:
    """Divide the buffer between the held items and the new task, as the policy prescribes.

    By quota, the lowest-priority-value items of every earlier task stay.
    """
    if policy == "reservoir":
        if variant == CTP:
            return _ctp_reservoir(size, candidates, seed)
        return _reservoir(size, candidates)
    held = np.bincount(candidates.held_task, minlength=len(candidates.sizes)).tolist()
    has = [*held[:-1], len(candidates.fresh_order)]  # of the new task, the fresh ones
    if variant == CTP and size.count is not None:
        quotas = rounded(candidates.sizes, size.count, has)
    else:
        quotas = _quotas(policy, size, candidates.sizes, has)
    stays = np.zeros(len(candidates.held_task), dtype=bool)
    for task, quota in enumerate(quotas[:-1]):
        rows = np.flatnonzero(candidates.held_task == task)
        stays[rows[lowest(candidates.held_priority[rows], quota)]] = True
    return Allotment(stays, quotas[-1])


def pick(
    policy: str,
    count: int,
    order: np.ndarray,
    features: FeaturesAt,
    seed: int,
    wanted: int | None = None,
) -> np.ndarray:
    """(count,) positions of the fresh items to admit; the first are the last to be evicted.

    `order` are the fresh items' (M,) hashes. `features` returns (K, D) L2-normalised features of
    the items at K positions; it is called only by the policies that use them, which choose from
    `wanted` items (None: see `most_considered`).
    """
    if policy not in NEEDS_FEATURES or count == 0:
        return lowest(order, count)
    among = considered(count, order, wanted)
    vectors = features(among)
    is_herding = policy == "herding"
    rows = herd(vectors, count) if is_herding else nearest_to_centroids(vectors, count, seed)
    picked: np.ndarray = among[rows]
    return picked


def considered(count: int, order: np.ndarray, wanted: int | None = None) -> np.ndarray:
    """(K,) positions of the fresh items from which `pick` chooses by their features, ascending."""
    found: np.ndarray = np.sort(lowest(order, wanted or most_considered(count)))
    return found


def most_considered(count: int) -> int:
    """How many items herding and k-means choose `count` from; of more, a random sample is taken.

    Their time grows with the product of both numbers: 10,000 of 50,000 take minutes.

    >>> most_considered(1_000), most_considered(20_000)
    (50000, 100000)
    """
    return max(_CONSIDERED, _CONSIDERED_PER_ITEM * count)


def require_considered(
    policy: str, variant: str, count: int, items: int, wanted: int | None
) -> None:
    """Raise UsageError if `count` of `items` would be chosen from too many, or from too few.

    `wanted` is --candidates, without which no policy chooses from more than 300,000.
    """
    if policy not in NEEDS_FEATURES:
        if wanted is not None:
            raise UsageError(
                f"--candidates has no effect with --policy {policy}, which uses no features"
            )
        return
    among = items if variant == CTP else min(items, most_considered(count))
    if wanted is None:
        if count and among > WITHOUT_ASKING:
            raise UsageError(
                f"--policy {policy} would choose {count} of {among} images, by a pass over "
                f"all of them for each: hours; --candidates {among} does so, and --policy "
                "reservoir takes seconds"
            )
    elif wanted < count:
        raise UsageError(f"--candidates {wanted} is less than the {count} images to choose")
    elif variant == CTP and wanted < items:
        raise UsageError(
            f"--variant ctp considers all {items} images, as the authors' code: give "
            f"--candidates {items}, or leave it out"
        )


def _reservoir(size: BufferSize, candidates: BufferCandidates) -> Allotment:
    order = np.concatenate([candidates.held_priority, candidates.fresh_order])
    if size.count is not None:
        chosen = fixed_count(order, size.count)
    else:
        assert size.share is not None
        chosen = fixed_share(order, size.share)
    held = len(candidates.held_priority)
    return Allotment(chosen[:held], int(chosen[held:].sum()))


def _quotas(
    policy: str, size: BufferSize, sizes: list[int], available_counts: list[int]
) -> list[int]:
    # --add evicts nothing: every earlier task keeps all it has.
    if size.add is not None:
        return [*available_counts[:-1], min(size.add, available_counts[-1])]
    if size.share is not None:
        return shares(sizes, size.share, available_counts)
    assert size.count is not None
    if policy == "ring":
        return even(size.count, available_counts)
    return proportional(sizes, size.count, available_counts)


def check_variant(variant: str, policy: str, size: BufferSize) -> None:
    """Raise UsageError if the variant is unknown or cannot be combined with the other options."""
    if variant not in VARIANTS:
        raise UsageError(unknown_name("variant", variant, VARIANTS))
    if variant == CTP and policy not in _CTP_POLICIES:
        raise UsageError(
            f"--variant ctp has no effect with --policy {policy}: the CTP authors' code does not "
            f"have it; use one of {', '.join(_CTP_POLICIES)}"
        )
    if variant == CTP and size.count is None:
        raise UsageError(
            "--variant ctp needs a number of items; use --size 10000, or --size 5% --of N"
        )


def pick_as_ctp(policy: str, count: int, items: int, features: FeaturesAt) -> np.ndarray:
    """(count,) positions of the fresh items to admit, in the order in which they are stored.

    All `items` are considered, as in the authors' code. `features` returns (K, D) L2-normalised
    features of the items at K positions; it is called if count > 0.
    """
    if count == 0:
        return np.empty(0, dtype=np.int64)
    everything = features(np.arange(items))
    if policy == "herding":
        return np.sort(herd_again(everything, count))
    return in_order_of_centroids(everything, count)


def _ctp_reservoir(size: BufferSize, candidates: BufferCandidates, seed: int) -> Allotment:
    """Replay the authors' slot-by-slot draws; an item's priority is its slot.

    A new row whose key is already in the buffer uses up a draw, but does not evict anything.
    """
    *before, new = candidates.sizes
    assert size.count is not None, "check_variant ensures it"
    slots = algorithm_r(size.count, sum(before), new, seed)
    rows = candidates.fresh_rows  # ascending
    places = np.searchsorted(rows, slots)
    is_fresh = np.isin(slots, rows)
    ranks, picked = np.flatnonzero(is_fresh), places[is_fresh]
    stays = ~np.isin(candidates.held_priority, ranks)
    return Allotment(stays, len(picked), picked, ranks)


# -- sizes, from the options --size, --of and --add

OF_STREAM = "stream"
_LARGEST = 2**63 - 1  # a manifest with a larger number could not be read again
_MOST_DIGITS = 100  # zeros in front included; int() refuses thousands


@dataclass(frozen=True, kw_only=True)
class BufferSize:
    """Exactly one of: a number of items, a share of every task, a number added with every task."""

    count: int | None = None
    share: float | None = None  # in (0, 1]
    add: int | None = None
    text: int | str  # as recorded in manifests and rows, such as 10000, "5%" or "+100"
    of: int | None = None  # the number of images that a percentage refers to
    is_of_stream: bool = False  # and whether these are all that the stream has now

    @property
    def kind(self) -> str:
        """What the number counts, in words; recorded in the manifest and shown in messages."""
        if self.add is not None:
            return "a number added with every task"
        return "a share of every task" if self.count is None else "a number of items"


def parse_size(size: str | None, of: str | None, add: int | None, task: Task) -> BufferSize:
    """Parse the options into a size.

    Raises UsageError if they are malformed or contradict each other, or if `--of stream` is given
    for a task outside a stream.
    """
    if add is not None:
        if size is not None or of is not None:
            raise UsageError("--add cannot be combined with --size or --of: it evicts nothing")
        return BufferSize(add=add, text=f"+{add}")
    if size is None:
        raise UsageError(
            "--size is missing; give a number of images or a share, such as 10000 or 5%"
        )
    if not size.endswith("%"):
        if of is not None:
            raise UsageError(
                f"--of has no effect with --size {size}: it applies only to a size in percent"
            )
        count = _whole_number(size)
        return BufferSize(count=count, text=count)
    share = _share(size)
    if of is None:
        return BufferSize(share=share, text=size)
    stream_images = _stream_images(task) if of == OF_STREAM else _whole_number(of, "--of")
    count = max(1, round(share * stream_images))
    return BufferSize(count=count, text=size, of=stream_images, is_of_stream=of == OF_STREAM)


def _whole_number(text: str, option: str = "--size") -> int:
    if not (text.isascii() and text.isdigit()) or not text.strip("0"):
        what = "5%" if option == "--size" else OF_STREAM
        raise UsageError(f"{option} is {text!r}; write a whole number such as 10000, or {what}")
    if len(text) > _MOST_DIGITS or int(text) > _LARGEST:
        raise UsageError(f"{option} {text} is too large; at most {_LARGEST} is possible")
    return int(text)


def _share(text: str) -> float:
    try:
        percent = parse_number(text[:-1])
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise UsageError(f"--size is {text!r}; a percentage must be above 0% and at most 100%")
    return percent / 100


def _stream_images(task: Task) -> int:
    """Number of training images in the whole stream that contains the task's directory."""
    directory = task.path.resolve().parent
    if not (directory / MANIFESTS["stream"]).is_file():
        raise UsageError(
            f"--of stream: {task.path} is not inside a stream directory; "
            "give the number of training images instead, such as --of 100000"
        )
    tasks = read_stream(directory).tasks
    return sum(one.splits["train"].images for one in tasks if "train" in one.splits)
