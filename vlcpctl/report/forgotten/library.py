"""Pictures and captions of the pairs that a report shows, from the tasks that --images names."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from vlcpctl.core.errors import BadInput, missing
from vlcpctl.data.images.transforms import decode_reduced
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import Split, Task, open_stream, open_task
from vlcpctl.files.manifest import kind_of

EDGE = 96  # pixels: the longest edge of a thumbnail
_QUALITY = 82
_KEY_DIGITS = 32


@dataclass(frozen=True)
class Thumbnail:
    """An encoded picture of at most EDGE pixels: its media type, bytes and size."""

    kind: str  # image/jpeg or image/png
    data: bytes
    width: int
    height: int


@dataclass
class Library:
    """The pairs of some tasks, found by their keys; only what is shown is read.

    `splits` are those that are searched, None for all.
    """

    tasks: Sequence[Task]
    splits: frozenset[str] | None = None
    _places: dict[str, tuple[Split, int]] = field(default_factory=dict)
    _searched: set[str] = field(default_factory=set)

    def find(self, keys: Iterable[str]) -> None:
        """Look for pairs, all at once: each index is read once a call.

        Raises BadInput if an index is damaged.
        """
        missing = [one for one in dict.fromkeys(keys) if one not in self._searched]
        self._searched.update(missing)
        wanted = Keys.of([one for one in missing if _is_key(one)])
        for split in self._opened if len(wanted) else ():
            for row in np.flatnonzero(split.keys.among(wanted)).tolist():
                self._places.setdefault(split.keys[row], (split, row))

    def captions(self, key: str) -> list[str]:
        """The captions of a pair that was looked for; [] if no task has it."""
        place = self._places.get(key)
        return [] if place is None else place[0].captions(place[1])

    def thumbnail(self, key: str) -> Thumbnail | None:
        """The picture of a pair that was looked for, made smaller; None if no task has it.

        Raises BadInput if its bytes have changed or cannot be decoded.
        """
        place = self._places.get(key)
        if place is None:
            return None
        split, row = place
        return thumbnail(split.image(row), f"{split.path} (key {key})")

    @cached_property
    def _opened(self) -> list[Split]:
        return [
            task.split(name)
            for task in self.tasks
            for name in task.manifest.splits
            if (self.splits is None or name in self.splits) and task.counts[name]
        ]


def open_library(paths: Sequence[Path]) -> list[Task]:
    """The tasks of stream and task directories, each once.

    Raises BadInput if a path is neither, or if it has changed since it was written.
    """
    found: dict[str, Task] = {}
    for path in paths:
        if not path.exists():
            raise BadInput(f"--images: {missing(path)}")
        if kind_of(path) not in {"stream", "task"}:
            raise BadInput(f"--images: {path} is neither a stream nor a task directory")
        for task in open_stream(path) if kind_of(path) == "stream" else [open_task(path)]:
            found.setdefault(task.content, task)
    return list(found.values())


def thumbnail(data: bytes, what: str = "image") -> Thumbnail:
    """An encoded image as a picture of at most EDGE pixels, as JPEG or PNG, whichever is smaller.

    The ratio of its edges stays, smaller images are not enlarged, and transparency becomes white.
    Raises BadInput if it cannot be decoded; `what` names it.
    """
    decoded = decode_reduced(data, _reduction, what)
    width, height = decoded.size
    scale = min(1.0, EDGE / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = decoded.pixels if size == decoded.pixels.size else decoded.resize(size, "bicubic")
    small = Image.fromarray(np.asarray(small))  # without comments and profiles of the file
    encoded = {"JPEG": _encoded(small, "JPEG", quality=_QUALITY), "PNG": _encoded(small, "PNG")}
    kind = min(encoded, key=lambda name: len(encoded[name]))
    return Thumbnail(f"image/{kind.lower()}", encoded[kind], *size)


def _reduction(size: tuple[int, int]) -> int:
    """By how much a JPEG is decoded smaller, with twice the pixels of the thumbnail to spare."""
    return next((by for by in (8, 4, 2) if max(size) // by >= 2 * EDGE), 1)


def _encoded(image: Image.Image, kind: str, **how: int) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, optimize=True, **how)
    return file.getvalue()


def _is_key(text: str) -> bool:
    return len(text) == _KEY_DIGITS and not set(text) - set("0123456789abcdef")
