"""metrics.jsonl: one row per optimizer step with every loss term; a resumed run has equal bytes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

from vlcpctl.core.words import counted, duration
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


def outcome(
    journal: Path, seconds: float, pairs: int, rate: str, keep: str = "last"
) -> Iterator[str]:
    """One line about the training in a complete metrics.jsonl, and one about its validation.

    `rate` is text to add to the number of pairs, such as " (200 pairs/s)"; `keep` says which epoch
    has been kept.
    """
    steps, last = 0, b""
    validations: list[dict[str, Any]] = []
    with journal.open("rb") as file:
        for line in file:
            if b'"val_loss"' in line:
                validations.append(json.loads(line))
            elif line.startswith(b'{"phase": "train"'):
                steps, last = steps + 1, line
    loss = f"; final loss {json.loads(last)['loss']:.3f}" if last else ""
    yield f"trained {counted(steps, 'step')} on {pairs} pairs in {duration(seconds)}{rate}{loss}"
    if validations:
        kept, best = validations[-1], ""
        if keep != "last":
            name = keep.removeprefix("best:")
            sign = 1.0 if name == "val_rmean" else -1.0
            kept = max(validations, key=lambda row: sign * row[name])
            best = f", the best of {len(validations)}"
        recall = f", R@mean {kept['val_rmean']:.2f}" if "val_rmean" in kept else ""
        yield f"validation after step {kept['step'] + 1}{best}: loss {kept['val_loss']:.3f}{recall}"
