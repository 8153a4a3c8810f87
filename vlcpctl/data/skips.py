"""Samples that could not be kept: counted, named in a file, and too many of them an error."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from vlcpctl.core.errors import TooManySkipped, UsageError


@dataclass(frozen=True)
class Tolerance:
    """How many samples may be skipped: a count, or a share of those read."""

    text: str
    count: int | None
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Read a count such as 20 or a share such as 0.1%.

        >>> Tolerance.parse("0.1%").allows(1, 1000), Tolerance.parse("20").allows(21, 1000)
        (True, False)
        """
        number = text.removesuffix("%")
        if text.isdigit():
            return cls(text, int(text))
        if text.endswith("%") and number.replace(".", "", 1).isdigit():
            return cls(text, None, float(number) / 100)
        raise UsageError(
            f"--max-skip {text!r} is neither a count nor a share; write it like 20 or 0.1%"
        )

    def allows(self, skipped: int, read: int) -> bool:
        """Whether so many of those read may be skipped."""
        return skipped <= (self.share * read if self.count is None else self.count)


@dataclass
class Skips:
    """Writes one line per skipped sample to `path`, made at the first; None keeps counts only."""

    path: Path | None
    counts: Counter[str] = field(default_factory=Counter)
    first: str = ""
    _file: TextIO | None = None

    def add(self, file: Path, place: str | int, reason: str, detail: str) -> None:
        """Count a sample by its reason and name it; `place` is a row or the name of a member."""
        where = f"row {place}" if isinstance(place, int) else f"member {place}"
        self.counts[reason] += 1
        self.first = self.first or f"{file}, {where}: {detail}"
        if self.path is None:
            return
        if self._file is None:
            self._file = self.path.open("w", encoding="utf-8")
        row = {"file": file.name, "place": where, "reason": reason, "detail": detail}
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()

    def check(self, tolerance: Tolerance, read: int) -> None:
        """An error that shows the first skipped sample when there are too many."""
        if not tolerance.allows(self.counts.total(), read):
            raise TooManySkipped(
                f"{self.counts.total()} of {read} samples cannot be used ({self.summary()}), "
                f"more than --max-skip {tolerance.text}; the first: {self.first}"
            )

    def summary(self) -> str:
        """The counts in words, the most frequent reason first."""
        return ", ".join(f"{reason} {count}" for reason, count in self.counts.most_common())
