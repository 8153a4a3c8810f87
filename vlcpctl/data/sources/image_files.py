"""Images given by path, relative to their list or to the directories in --image-root."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import shortened
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.file_log import FileLog, looks_only, state_of
from vlcpctl.data.sources.records import is_unicode
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files.inputs import open_with_state

# The state of a file before it was read, its bytes or None, and why they are not read.
_Read = tuple[os.stat_result | None, bytes | None, str | None]
_NOT_HERE = frozenset({errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True)
class ImageFiles:
    """The directories that image paths are relative to, tried in order."""

    roots: tuple[Path, ...]
    log: FileLog | None = None
    is_contained: bool = False  # whether absolute paths and .. are refused

    def read(self, name: str | None) -> tuple[bytes | None, str | None]:
        """(bytes, None) for an image that can be read, else (None, reason)."""
        if not name:
            return None, "neither image bytes nor a path"
        if "://" in name or "\0" in name or name.startswith("pipe:") or not is_unicode(name):
            return None, f"{shortened(name)!r} is not a file path"
        if self.is_contained and _leaves(name):
            return None, f"{shortened(name)} is outside the directory of its metadata"
        found = "no directory to look in"
        for root in self.roots:
            try:
                return self._logged(root / name, name)
            except BadInput as error:
                cause = error.__cause__
                if not isinstance(cause, OSError):
                    return None, f"{shortened(name)} is not a regular file"
                found = unreadable(shortened(name), cause)
                if cause.errno not in _NOT_HERE:
                    break
        return None, found

    def _logged(self, path: Path, name: str) -> tuple[bytes | None, str | None]:
        if looks_only(self.log, path):
            found: _Read = state_of(path), b"", None
        else:
            found = _read(path, name)
        before, data, flaw = found
        if self.log is not None:
            self.log.add(name, before, data)
        return data, flaw

    def with_image(self, pair: Pair, name: str | None) -> Pair:
        """The pair with the image of that name, or with a flaw that gives the reason."""
        if pair.flaw:
            return pair
        image, flaw = self.read(name)
        return pair._replace(image=image, flaw=flaw)


def _leaves(name: str) -> bool:
    """Whether a path is absolute or has more `..` than directories before them.

    Links are followed: the Hugging Face cache consists of links.
    """
    path = Path(os.path.normpath(name))
    return path.is_absolute() or path.parts[:1] == ("..",)


def _read(path: Path, name: str) -> _Read:
    file, before = open_with_state(path)
    with file:
        size = before.st_size
        if size > MAX_BYTES:
            flaw = f"{shortened(name)} has {size} bytes, the limit is {MAX_BYTES}"
            return before, None, flaw
        data = file.read(size)  # to find the end of the file takes three more system calls
        return before, data if len(data) == size else data + file.read(), None
