"""Which split of a task an image belongs to: its hash alone decides, so it is never in two."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.words import is_decimal, printable
from vlcpctl.data.tasks.index import SPLITS
from vlcpctl.select.quotas import proportional

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
    most: Fraction | None = None  # share of a task's images that counts may take

    @property
    def leaves_no_train(self) -> bool:
        """Whether the shares take all images."""
        return not self.counted and sum(self.parts.values()) == 1

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
    """Parse test=0.1,val=5% (shares), test=5000 (images per task) or none.

    A number with a point is a share: test=1 is one image per task, test=1.0 is all of them.
    Raises UsageError for anything else.

    >>> parse_holdout("test=0.1,val=0.05").parts
    {'test': 0.1, 'val': 0.05}
    >>> parse_holdout("test=1").counted, parse_holdout("test=1.0").counted
    (True, False)
    """
    if text == "none":
        return Holdout({}, counted=False)
    parts: dict[str, float] = {}
    whole = []
    for piece in text.split(","):
        name, _, given = piece.strip().partition("=")
        number = given.removesuffix("%")
        if name not in SPLITS[1:] or name in parts or not is_decimal(number) or float(number) == 0:
            example = f"test=0.1,val=0.05 or test=5000 or none; splits: {', '.join(SPLITS[1:])}"
            raise UsageError(f"--holdout {text!r}: write it like {example}")
        parts[name] = float(Fraction(number) / 100) if given.endswith("%") else float(number)
        whole.append(given.isdigit())
    if all(whole):
        return Holdout(parts, counted=True)
    if any(whole) or sum(parts.values()) > 1:
        raise UsageError(
            f"--holdout {text!r}: give shares that sum to at most 1, or only whole numbers"
        )
    return Holdout(parts, counted=False)


def parse_most(text: str, holdout: Holdout | None) -> Holdout:
    """The hold-out limited by --holdout-most, a percentage. Raises UsageError if it has no effect.

    >>> parse_most("10%", parse_holdout("test=500")).most
    Fraction(1, 10)
    """
    number = text.removesuffix("%")
    if not (text.endswith("%") and is_decimal(number) and 0 < Fraction(number) < 100):
        raise UsageError(
            f"--holdout-most {text!r}: write it as a percentage between 0% and 100%, such as 10%"
        )
    if holdout is None or not holdout.counted:
        raise UsageError(
            "--holdout-most has no effect: it limits a --holdout of N images per task, such as "
            "test=500"
        )
    return replace(holdout, most=Fraction(number) / 100)


@dataclass
class CountedHoldout:
    """Holds out a number of images per task: those with the lowest positions.

    With `holdout.most` a smaller task holds out at most that share of its images, and at least
    one if it has two. Call `count` for every image, then `decide` once; `split_of` then gives the
    split of each.
    """

    holdout: Holdout
    # Heaps of negated positions, so that the highest of those held out is at the top.
    _nearest: dict[str, list[float]] = field(default_factory=dict)
    _held: dict[str, set[float]] = field(default_factory=dict)
    _splits: dict[str, dict[float, str]] = field(default_factory=dict)
    _everywhere: set[float] = field(default_factory=set)  # held out in any task

    def __post_init__(self) -> None:
        self._wanted = int(sum(self.holdout.parts.values()))
        # A task with this many images can spare all that are wanted, so more need not be counted.
        most = self.holdout.most
        self._enough = self._wanted if most is None else math.ceil(self._wanted / most)

    def count(self, task: str, sha256: str) -> None:
        """Count one image of a task; memory grows only with the number of images held out."""
        at = position(sha256)
        heap, held = self._nearest.setdefault(task, []), self._held.setdefault(task, set())
        if at in held:
            return
        if len(heap) < self._enough:
            heapq.heappush(heap, -at)
            held.add(at)
        elif at < -heap[0]:
            held.remove(-heapq.heapreplace(heap, -at))
            held.add(at)

    def decide(self) -> list[str]:
        """Assign the images held out to the parts; returns warnings of tasks that hold out fewer.

        Raises BadInput if a task has too few images and `holdout.most` is not set.
        """
        warnings = []
        for task, held in self._held.items():
            counts = [int(count) for count in self.holdout.parts.values()]
            if len(held) < self._enough:
                counts = self._fewer(task, len(held), counts)
                warnings.append(self._said(task, len(held), counts))
            ranked = iter(sorted(held))
            self._splits[task] = {
                next(ranked): name
                for name, count in zip(self.holdout.parts, counts, strict=True)
                for _ in range(count)
            }
        self._everywhere = set().union(*self._splits.values())
        return warnings

    def _fewer(self, task: str, images: int, counts: list[int]) -> list[int]:
        """The number of images of each part that a small task holds out."""
        if self.holdout.most is None:
            raise BadInput(
                f"task {task!r} has {images} images, fewer than the {self._wanted} of --holdout; "
                "--holdout-most 10% holds out at most that share of a task"
            )
        total = max(math.floor(images * self.holdout.most), min(images - 1, 1))
        return proportional(counts, total, counts)

    def _said(self, task: str, images: int, counts: list[int]) -> str:
        given = ",".join(f"{name}={int(count)}" for name, count in self.holdout.parts.items())
        found = zip(self.holdout.parts, counts, strict=True)
        fewer = ",".join(f"{name}={count}" for name, count in found)
        return (
            f"task {printable(task):.80} has {images} images: it holds out {fewer} instead of "
            f"{given} (--holdout-most)"
        )

    def split_of(self, task: str, sha256: str) -> str | None:
        """The split of an image in a task; None when another task holds it out.

        Raises BadInput for a task that was not counted.
        """
        if task not in self._splits:
            raise BadInput(f"a source changed while it was being read: task {task!r} is new")
        at = position(sha256)
        side = self._splits[task].get(at)
        if side is None and at not in self._everywhere:
            return "train"
        return side
