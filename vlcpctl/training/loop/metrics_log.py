"""metrics.jsonl: one row per optimizer step with every loss term; a resumed run has equal bytes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import xxhash

from vlcpctl.files.digests import ALGORITHM, FileDigest

FILE_NAME = "metrics.jsonl"
FLUSH_S = 0.5  # after which others can read the rows, such as `inspect`


class MetricsLog:
    """Appends rows to metrics.jsonl, after cutting the file back to `keep_bytes`.

    Rows after the saved position belong to steps that a resumed run repeats. Only rank 0 writes;
    the other processes pass no path.
    """

    def __init__(self, path: Path | None, keep_bytes: int) -> None:
        self._file = path.open("a+b") if path else None
        self._bytes, self._digest = keep_bytes, xxhash.xxh3_128()
        self._flushed = time.monotonic()
        if self._file:
            self._file.truncate(keep_bytes)
            self._file.seek(0)
            self._digest.update(self._file.read())

    def append(self, row: dict[str, Any]) -> None:
        """Add one row. It has no times: equal runs must have equal journals."""
        if self._file:
            line = (json.dumps(row) + "\n").encode()
            self._file.write(line)
            self._bytes += len(line)
            self._digest.update(line)
            if time.monotonic() - self._flushed > FLUSH_S:
                self._file.flush()
                self._flushed = time.monotonic()

    def sync(self) -> FileDigest:
        """Flush to disk; returns the size and digest of all rows, as a saved state records them."""
        if self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return {"bytes": self._bytes, ALGORITHM: self._digest.hexdigest()}

    def close(self) -> None:
        """Flush and close."""
        if self._file:
            self._file.close()
