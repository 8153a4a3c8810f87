"""Random access to images with one class each, in a task's split or in tars of another program.

A label is an index into a list of class names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.inputs import OpenFiles, naming_input
from vlcpctl.files.stores import whole


@dataclass(frozen=True)
class Flaw:
    """An image that cannot be used."""

    name: str  # which image, for messages
    why: str  # the reason, to follow "{name}: "


class ImagesInTars:
    """Labelled images located in tars: add them first, then read them in any order.

    They are numbered in order; `flaws` are further images that cannot be used.
    """

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self._paths: list[Path] = []
        self._keys: list[str] = []
        self._places: list[tuple[int, int, int]] = []  # index of the tar, offset, size in bytes
        self._labels: list[int] = []
        self._local: list[Path] = []
        self._tars = OpenFiles(self._local)

    def open(self, path: Path) -> None:
        """Start a tar: images added from now on are in this one."""
        self._paths.append(path)
        self._local.append(whole(path))

    def add(self, key: str, offset: int, size: int, label: int) -> None:
        """Add an image of the current tar; `offset` and `size` are in bytes."""
        self._keys.append(key)
        self._places.append((len(self._paths) - 1, offset, size))
        self._labels.append(label)

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) class index of each image."""
        return np.array(self._labels, dtype=np.int64)

    def image(self, row: int) -> bytes:
        """The encoded bytes of the image file at `row`."""
        shard, offset, size = self._places[row]
        with naming_input(self._paths[shard]):
            return os.pread(self._tars.descriptor(shard), size, offset)

    def name(self, row: int) -> str:
        """The name of the image at `row`, for messages."""
        return f"{self._paths[self._places[row][0]]}, {self._keys[row]}"

    def key(self, row: int) -> str:
        """An identifier that random draws for the image depend on; it is independent of paths."""
        return self._keys[row]


@dataclass
class ImagesOfSplit:
    """The labelled images of a task's split; images without a label are flaws.

    Raises BadInput if a label is not among `classes`.
    """

    split: Split
    classes: Sequence[str]
    flaws: list[Flaw] = field(default_factory=list)

    def __post_init__(self) -> None:
        number_of = {name: number for number, name in enumerate(self.classes)}
        names, code_N = self.split.labels()
        unknown = {names[code] for code in np.unique(code_N[code_N >= 0])} - number_of.keys()
        if unknown:
            raise BadInput(
                f"{self.split.path} has the label {min(unknown)!r}, which its manifest lacks; "
                "run 'vlcpctl check'"
            )
        self._rows = np.flatnonzero(code_N >= 0)
        numbers = np.array([number_of.get(name, -1) for name in names], dtype=np.int64)
        self.labels = numbers[code_N[self._rows]]
        lacking = np.flatnonzero(code_N < 0).tolist()
        self.flaws += [Flaw(self._name(row), "no label") for row in lacking]

    def image(self, row: int) -> bytes:
        """See `ImagesInTars`."""
        return self.split.image(int(self._rows[row]))

    def name(self, row: int) -> str:
        """See `ImagesInTars`."""
        return self._name(int(self._rows[row]))

    def key(self, row: int) -> str:
        """See `ImagesInTars`."""
        return self.split.keys[int(self._rows[row])]

    def _name(self, row: int) -> str:
        return f"{self.split.path}, key {self.split.keys[row]}"


LabelledImages = ImagesInTars | ImagesOfSplit
