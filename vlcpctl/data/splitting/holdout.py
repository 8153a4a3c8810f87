"""Which split of a task an image belongs to: its hash alone decides, so it is never in two."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.tasks.index import SPLITS

_SALT = b"hold-out of 2026"  # 16 bytes; another value would reassign every image


def position(sha256: str) -> float:
    """The position of an image in [0, 1): the same in every task, run and program version."""
    digest = hashlib.blake2b(sha256.encode(), digest_size=8, person=_SALT).digest()
    return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True)
class Holdout:
    """The parts to hold out, each a share of all images or a number of images per task."""

    parts: Mapping[str, float]
    counted: bool

    def split_of(self, sha256: str) -> str:
        """The split of an image; only for parts that are shares."""
        where = position(sha256)
        end = 0.0
        for name, share in self.parts.items():
            end += share
            if where < end:
                return name
        return "train"


def parse_holdout(text: str) -> Holdout:
    """Parse test=0.1,val=0.05 (shares), test=5000 (images per task) or none.

    Raises UsageError for anything else.

    >>> parse_holdout("test=0.1,val=0.05").parts
    {'test': 0.1, 'val': 0.05}
    """
    if text == "none":
        return Holdout({}, counted=False)
    parts: dict[str, float] = {}
    for piece in text.split(","):
        name, _, number = piece.strip().partition("=")
        if (
            name not in SPLITS[1:]
            or name in parts
            or not number.replace(".", "", 1).isdigit()
            or float(number) == 0
        ):
            example = f"test=0.1,val=0.05 or test=5000 or none; splits: {', '.join(SPLITS[1:])}"
            raise UsageError(f"--holdout {text!r}: write it like {example}")
        parts[name] = float(number)
    whole = [value >= 1 and value.is_integer() for value in parts.values()]
    if all(whole):
        return Holdout(parts, counted=True)
    if any(value >= 1 for value in parts.values()) or sum(parts.values()) >= 1:
        raise UsageError(
            f"--holdout {text!r}: give shares that sum to less than 1, or only whole numbers"
        )
    return Holdout(parts, counted=False)


@dataclass
class CountedHoldout:
    """Holds out a number of images per task: those with the lowest positions.

    Call `count` for every image, then `decide` once; `split_of` then gives the split of each.
    """

    holdout: Holdout
    # Heaps of negated positions, so that the highest of those held out is at the top.
    _nearest: dict[str, list[float]] = field(default_factory=dict)
    _held: dict[str, set[float]] = field(default_factory=dict)
    _splits: dict[str, dict[float, str]] = field(default_factory=dict)
    _everywhere: set[float] = field(default_factory=set)  # held out in any task

    def count(self, task: str, sha256: str) -> None:
        """Count one image of a task; memory grows only with the number of images held out."""
        at = position(sha256)
        heap, held = self._nearest.setdefault(task, []), self._held.setdefault(task, set())
        if at in held:
            return
        if len(heap) < sum(self.holdout.parts.values()):
            heapq.heappush(heap, -at)
            held.add(at)
        elif at < -heap[0]:
            held.remove(-heapq.heapreplace(heap, -at))
            held.add(at)

    def decide(self) -> None:
        """Assign the images held out to the parts. Raises BadInput if a task has too few images."""
        for task, held in self._held.items():
            wanted = int(sum(self.holdout.parts.values()))
            if len(held) < wanted:
                found = f"task {task!r} has {len(held)} images"
                raise BadInput(f"{found}, fewer than the {wanted} of --holdout")
            ranked = iter(sorted(held))
            self._splits[task] = {
                next(ranked): name
                for name, count in self.holdout.parts.items()
                for _ in range(int(count))
            }
        self._everywhere = set().union(*self._held.values())

    def split_of(self, task: str, sha256: str) -> str | None:
        """The split of an image in a task; None when another task holds it out."""
        at = position(sha256)
        side = self._splits[task].get(at)
        if side is None and at not in self._everywhere:
            return "train"
        return side
