"""Images given by path, relative to their list or to the directories in --image-root."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import unreadable
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.tasks.samples import Pair

_NOT_HERE = frozenset({errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True)
class ImageFiles:
    """The directories that image paths are relative to, tried in order."""

    roots: tuple[Path, ...]

    def read(self, name: str | None) -> tuple[bytes | None, str | None]:
        """(bytes, None) for an image that can be read, else (None, reason)."""
        if not name:
            return None, "neither image bytes nor a path"
        if "://" in name or "\0" in name or name.startswith("pipe:"):
            return None, f"{name!r} is not a file path"
        found = f"cannot read {name}"
        for root in self.roots:
            try:
                return _read(root / name, name)
            except OSError as error:
                found = unreadable(name, error)
                if error.errno not in _NOT_HERE:
                    break
        return None, found

    def with_image(self, pair: Pair, name: str | None) -> Pair:
        """The pair with the image of that name, or with a flaw that gives the reason."""
        if pair.flaw:
            return pair
        image, flaw = self.read(name)
        return pair._replace(image=image, flaw=flaw)


def _read(path: Path, name: str) -> tuple[bytes | None, str | None]:
    # Without O_NONBLOCK, opening a named pipe would block for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return None, f"{name} is not a regular file"
        if facts.st_size > MAX_BYTES:
            return None, f"{name} has {facts.st_size} bytes, the limit is {MAX_BYTES}"
        return file.read(), None
