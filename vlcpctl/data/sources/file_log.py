"""The files that a source reads besides its own, such as images that a list names, as a digest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.header import Bytes
from vlcpctl.files.digests import ALGORITHM, is_settled, recall, record


class FileLog:
    """Collects name, size and bytes of files, in the order in which they are read.

    With `reads=False`, readers only stat the files and return empty bytes: enough for `recalled`,
    and much faster.
    """

    def __init__(self, source: Path, *, reads: bool = True) -> None:
        self.source, self.reads = source, reads
        self._name = f"files of {os.path.realpath(source)}"  # in the cache
        self._before = _mark(source)
        self._files = self._bytes = 0
        self._content, self._state = xxhash.xxh3_128(), xxhash.xxh3_128()
        self._is_settled = self._is_empty = True

    def add(self, name: str, found: os.stat_result | None, data: Bytes | None) -> None:
        """Record a file, given its state before it was read; see `state_of`.

        `data` is None if it cannot be read or is not used.
        """
        label = f"{len(name)}:{name}:".encode(errors="surrogatepass")
        state = b""
        if found is not None:
            times = (found.st_mtime_ns, found.st_ctime_ns)
            state = b"%d %d %d %d %d" % (found.st_dev, found.st_ino, found.st_size, *times)
            self._is_settled &= is_settled(found)
        self._is_empty = False
        self._state.update(b"%b%b;" % (label, state))
        if data is None:
            self._content.update(b"%b-;" % label)
            return
        self._files += 1
        self._bytes += len(data)
        self._content.update(b"%b%d:%b;" % (label, len(data), xxhash.xxh3_128_digest(data)))

    def facts(self) -> dict[str, Any]:
        """Number and bytes of the files that were read, and a digest of names, sizes and bytes."""
        return {"files": self._files, "bytes": self._bytes, ALGORITHM: self._content.hexdigest()}

    def check_unchanged(self) -> None:
        """Raise BadInput if the source's own file has changed since this log was made."""
        if not self.source.is_dir() and _mark(self.source) != self._before:
            raise BadInput(f"{self.source} changed while it was being read; run the command again")

    def remember(self) -> None:
        """Keep the facts in the cache, for `recalled` when none of the files has been touched."""
        if self._is_settled and self._files:
            record(self._name, self._state.hexdigest(), self.facts())

    def recalled(self) -> Mapping[str, Any] | None:
        """The facts that a log of the same files kept, if none has been touched since.

        Those of no files need not have been kept: a source may contain its images after all.
        """
        if self._is_empty:
            return self.facts()
        return recall(self._name, self._state.hexdigest())


def _mark(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def state_of(path: Path | str) -> os.stat_result | None:
    """The state of a file, or None if there is none."""
    try:
        return os.stat(path)  # noqa: PTH116 - no path object for each of a million files
    except (OSError, ValueError):
        return None


def looks_only(log: FileLog | None, path: Path | str) -> bool:
    """Whether a reader should return empty bytes for a file instead of reading it."""
    return log is not None and not log.reads and Path(path).is_file()
