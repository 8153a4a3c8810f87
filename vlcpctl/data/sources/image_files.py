"""Images given by path: read beside their list, or under the directories that the user names."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.data.images import MAX_BYTES
from vlcpctl.data.pairs import Pair

_NOT_HERE = frozenset({errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True)
class ImageFiles:
    """Directories that paths of images begin in, tried in order."""

    roots: tuple[Path, ...]

    def read(self, name: str | None) -> tuple[bytes | None, str | None]:
        """The bytes of an image, or None with the reason."""
        if not name:
            return None, "neither image bytes nor a path"
        if "://" in name or "\0" in name or name.startswith("pipe:"):
            return None, f"{name!r} is not a file path"
        found = f"{name} cannot be read"
        for root in self.roots:
            try:
                return _read(root / name, name)
            except OSError as error:
                found = f"{name} cannot be read: {error.strerror}"
                if error.errno not in _NOT_HERE:
                    break
        return None, found

    def with_image(self, pair: Pair, name: str | None) -> Pair:
        """The pair with its image, or with what is wrong with it."""
        if pair.flaw:
            return pair
        image, flaw = self.read(name)
        return pair._replace(image=image, flaw=flaw)


def _read(path: Path, name: str) -> tuple[bytes | None, str | None]:
    # Without O_NONBLOCK a named pipe in the list would stop the program for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return None, f"{name} is not a regular file"
        if facts.st_size > MAX_BYTES:
            return None, f"{name} has {facts.st_size} bytes, the limit is {MAX_BYTES}"
        return file.read(), None
