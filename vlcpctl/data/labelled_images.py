"""Images with a class each, read at random: of a task's split, or of tars that somebody else made.

Labels are numbers, places in a list of class names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput
from vlcpctl.data.task import Split


@dataclass(frozen=True)
class Flaw:
    """An image that cannot be used: which one, and why."""

    name: str
    why: str


class LabelledImages(Protocol):
    """Images by their place in order; `flaws` are those that have no place."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each image."""

    @property
    def flaws(self) -> Sequence[Flaw]:
        """What is left out."""

    def image(self, row: int) -> bytes:
        """The bytes of an image file."""

    def name(self, row: int) -> str:
        """The image, for messages."""

    def key(self, row: int) -> str:
        """What draws of the image hang on, whatever the path."""


class ImagesInTars:
    """Images found in tars: which file, where in it, and the label."""

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self._paths: list[Path] = []
        self._keys: list[str] = []
        self._places: list[tuple[int, int, int]] = []  # the number of the tar, offset, size
        self._labels: list[int] = []
        self._descriptors: dict[tuple[int, int], int] = {}

    def open(self, path: Path) -> None:
        """What is added from here on lies in this tar."""
        self._paths.append(path)

    def add(self, key: str, offset: int, size: int, label: int) -> None:
        """The next image."""
        self._keys.append(key)
        self._places.append((len(self._paths) - 1, offset, size))
        self._labels.append(label)

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array(self._labels, dtype=np.int64)

    def image(self, row: int) -> bytes:
        """See `LabelledImages`."""
        shard, offset, size = self._places[row]
        return os.pread(self._descriptor(shard), size, offset)

    def name(self, row: int) -> str:
        """See `LabelledImages`."""
        return f"{self._paths[self._places[row][0]]}, {self._keys[row]}"

    def key(self, row: int) -> str:
        """See `LabelledImages`."""
        return self._keys[row]

    def _descriptor(self, shard: int) -> int:
        # Workers are forked: each process opens its own, as `data.task.Split` does.
        place = (os.getpid(), shard)
        if place not in self._descriptors:
            self._descriptors[place] = os.open(self._paths[shard], os.O_RDONLY)
        return self._descriptors[place]


@dataclass
class ImagesOfSplit:
    """A split of a task whose labels are among these classes."""

    split: Split
    classes: Sequence[str]
    flaws: list[Flaw] = field(default_factory=list)

    def __post_init__(self) -> None:
        number_of = {name: number for number, name in enumerate(self.classes)}
        labels = self.split.column("label")
        self._rows = [row for row, label in enumerate(labels) if label is not None]
        unknown = {labels[row] for row in self._rows} - number_of.keys()
        if unknown:
            raise BadInput(
                f"{self.split.path} has a label {min(unknown)!r} that its manifest does not list; "
                "run 'vlcpctl check'"
            )
        self.labels = np.array([number_of[labels[row]] for row in self._rows], dtype=np.int64)
        self.flaws += [
            Flaw(self._name(row), "no label") for row, label in enumerate(labels) if label is None
        ]

    def image(self, row: int) -> bytes:
        """See `LabelledImages`."""
        return self.split.image(self._rows[row])

    def name(self, row: int) -> str:
        """See `LabelledImages`."""
        return self._name(self._rows[row])

    def key(self, row: int) -> str:
        """See `LabelledImages`."""
        return self.split.keys[self._rows[row]]

    def _name(self, row: int) -> str:
        return f"{self.split.path}, key {self.split.keys[row]}"
