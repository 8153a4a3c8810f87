"""Which split of a task an image belongs to: its hash alone decides, so it is never in two."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
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

    def split_of(self, sha256: str) -> str:
        """The split of an image; only for parts that are shares."""
        where, end = position(sha256), 0.0
        for name, share in self.parts.items():
            end += share
            if where < end:
                return name
        return "train"


def parse_holdout(text: str) -> Holdout:
    """Parse test=0.1,val=5% (shares), test=5000 (images per task) or none.

    A number with a point is a share; test=1 alone is one, too: all images. Raises UsageError for
    anything else.

    >>> parse_holdout("test=0.1,val=0.05").parts
    {'test': 0.1, 'val': 0.05}
    >>> parse_holdout("test=1").counted, parse_holdout("test=2").counted
    (False, True)
    """
    parts: dict[str, float] = {}
    whole = []
    for piece in text.split(",") if text != "none" else ():
        name, _, given = piece.strip().partition("=")
        number = given.removesuffix("%")
        if name not in SPLITS[1:] or name in parts or not is_decimal(number) or float(number) == 0:
            example = f"test=0.1,val=0.05 or test=5000 or none; splits: {', '.join(SPLITS[1:])}"
            raise UsageError(f"--holdout {text!r}: write it like {example}")
        parts[name] = float(Fraction(number) / 100) if given.endswith("%") else float(number)
        whole.append(given.isdigit())
    counted = bool(parts) and all(whole) and list(parts.values()) != [1]
    if not counted and (sum(parts.values()) > 1 or (any(whole) and len(whole) > 1)):
        raise UsageError(
            f"--holdout {text!r}: give shares that sum to at most 1, or only whole numbers"
        )
    return Holdout(parts, counted)


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


class CountedHoldout:
    """Holds out a number of images per task: those with the lowest positions.

    With `holdout.most` a smaller task holds out at most that share of its images, and at least
    one if it has two. Call `count` for every image, then `decide` once; `split_of` then gives the
    split of each.
    """

    def __init__(self, holdout: Holdout) -> None:
        self.holdout = holdout
        self._counts = [int(count) for count in holdout.parts.values()]
        wanted = sum(self._counts)
        # A task with this many images can spare all that are wanted, so more need not be counted.
        self._enough = wanted if holdout.most is None else math.ceil(wanted / holdout.most)
        # By task the lowest positions, and heaps of them negated: the highest is at the top.
        self._held: dict[str, set[float]] = {}
        self._heaps: dict[str, list[float]] = {}
        self._splits: dict[str, dict[float, str]] = {}
        self._everywhere: set[float] = set()  # held out in any task

    def count(self, task: str, sha256: str) -> None:
        """Count one image of a task; memory grows only with the number of images held out."""
        at = position(sha256)
        heap, held = self._heaps.setdefault(task, []), self._held.setdefault(task, set())
        if at in held or (len(heap) == self._enough and at >= -heap[0]):
            return
        held.add(at)
        if len(heap) < self._enough:
            heapq.heappush(heap, -at)
        else:
            held.remove(-heapq.heapreplace(heap, -at))

    def decide(self) -> list[str]:
        """Assign the images held out to the parts; returns warnings of tasks that hold out fewer.

        Raises BadInput if a task has too few images and `holdout.most` is not set.
        """
        warnings = []
        for task, held in self._held.items():
            counts = self._counts
            if len(held) < self._enough:
                counts = self._fewer(task, len(held))
                warnings.append(
                    f"task {printable(task):.80} has {len(held)} images: it holds out "
                    f"{self._said(counts)} instead of {self._said(self._counts)} (--holdout-most)"
                )
            parts = zip(self.holdout.parts, counts, strict=True)
            names = [name for name, count in parts for _ in range(count)]
            self._splits[task] = dict(zip(sorted(held), names, strict=False))
        self._everywhere = set().union(*self._splits.values())
        return warnings

    def _said(self, counts: list[int]) -> str:
        parts = zip(self.holdout.parts, counts, strict=True)
        return ",".join(f"{name}={count}" for name, count in parts)

    def _fewer(self, task: str, images: int) -> list[int]:
        """The number of images of each part that a small task holds out."""
        if self.holdout.most is None:
            raise BadInput(
                f"task {task!r} has {images} images, fewer than the {self._enough} of --holdout; "
                "--holdout-most 10% holds out at most that share of a task"
            )
        total = max(math.floor(images * self.holdout.most), min(images - 1, 1))
        return proportional(self._counts, total, self._counts)

    def split_of(self, task: str, sha256: str) -> str | None:
        """The split of an image in a task; None when another task holds it out.

        Raises BadInput for a task that was not counted.
        """
        if task not in self._splits:
            raise BadInput(f"a source changed while it was being read: task {task!r} is new")
        at = position(sha256)
        side = self._splits[task].get(at)
        return "train" if side is None and at not in self._everywhere else side
