"""Follows a metrics.jsonl while another process writes it."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.files.input_files import open_regular
from vlcpctl.files.safe_json import parse_json

MOST_ROWS = 400  # that are kept
MOST_BYTES = 1 << 20  # at the end of a long file, that are read first
VALIDATED = "val_loss"  # in rows of validations, and in no others


class JournalTail:
    """The last rows of a journal; each `read` adds those written since.

    A file that became shorter or was replaced, as when a run resumes, is read from its start
    again. A line without its end is left for the next read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.forget()

    def forget(self) -> None:
        """Drop all rows, and read the file again the next time."""
        self.steps: deque[dict[str, Any]] = deque(maxlen=MOST_ROWS)
        self.validations: deque[dict[str, Any]] = deque(maxlen=MOST_ROWS)
        self.modified: float | None = None
        self._inode, self._offset, self._rest = -1, 0, b""

    def read(self) -> None:
        """Read what was added; a file that does not exist has no rows."""
        try:
            with open_regular(self.path) as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    self.forget()
                    self._inode, self._offset = found.st_ino, max(0, found.st_size - MOST_BYTES)
                    if self._offset:
                        file.seek(self._offset)
                        self._offset += len(file.readline())
                file.seek(self._offset)
                data = file.read(found.st_size - self._offset)
        except (OSError, BadInput):
            self.forget()
            return
        self.modified, self._offset = found.st_mtime, self._offset + len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            row = parse_json(line)
        except ValueError:
            return
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            return
        (self.validations if VALIDATED in row else self.steps).append(row)
