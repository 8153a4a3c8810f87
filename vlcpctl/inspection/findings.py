"""What `check` reports of data that is undamaged: leaks, shared captions, near duplicates."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.files.manifest import kind_of

Ids = NDArray[np.uint64]  # the first 64 bits of digests: enough to tell images and keys apart

# What a task that was changed may raise; `check` reports it as damage.
_UNREADABLE = (BadInput, OSError, ValueError, pa.ArrowException)


@dataclass(frozen=True)
class Finding:
    """A flaw in data that is not damage, but makes training or a metric less meaningful."""

    path: Path  # the artifact
    kind: str  # such as "leak"
    text: str  # what was found, with an example and what to do
    count: int
    example: str


@dataclass(frozen=True)
class CheckedSplit:
    """A split of a task or buffer; `given` is the path on the command line that it belongs to."""

    given: Path
    task: Path
    split: Split

    @cached_property
    def images(self) -> Ids:
        """(N,) what identifies the image of each row."""
        return _ids(self.split.digests())

    @cached_property
    def keys(self) -> Ids:
        """(N,) what identifies each image with its captions."""
        return _ids(self.split.keys.raw)

    @property
    def is_trained_on(self) -> bool:
        """Whether its images are for training, as those of a buffer are."""
        return self.split.name == "train"

    def __str__(self) -> str:
        return f"{self.task} ({self.split.name})"


def splits_of(paths: Iterable[Path]) -> list[CheckedSplit]:
    """The filled splits of the streams, tasks and buffers among some artifacts, each once.

    Those that cannot be opened are left out: `check` reports them as damage.
    """
    found: dict[str, list[CheckedSplit]] = {}
    for given in paths:
        with suppress(*_UNREADABLE):
            for task in _tasks_of(given):
                place = os.path.realpath(task)
                if place not in found:
                    found[place] = list(_opened(given, task))
    return [split for splits in found.values() for split in splits]


def _tasks_of(path: Path) -> list[Path]:
    kind = kind_of(path)
    if kind == "stream":
        return [path / one.path for one in read_stream(path).tasks]
    return [path] if kind == "task" else []


def _opened(given: Path, path: Path) -> Iterator[CheckedSplit]:
    with suppress(*_UNREADABLE):
        task = open_task(path)
        for name, listed in task.manifest.splits.items():
            with suppress(*_UNREADABLE):
                if listed.images:
                    yield CheckedSplit(given, path, task.split(name))


def _ids(digests_NW: np.ndarray) -> Ids:
    first: Ids = np.ascontiguousarray(digests_NW[:, :8]).view(np.uint64)[:, 0]
    return first


def listed(names: Iterable[object], most: int = 3) -> str:
    """A few names, and how many others there are.

    >>> listed("abcde")
    'a, b, c and 2 more'
    """
    every = [str(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
