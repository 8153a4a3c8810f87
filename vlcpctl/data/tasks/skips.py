"""Skipped samples: count them, list them in a file, and fail if there are too many."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from vlcpctl.core.errors import TooManySkipped, UsageError
from vlcpctl.core.words import is_decimal, shortened
from vlcpctl.data.tasks.samples import EXPECTED


@dataclass(frozen=True)
class Tolerance:
    """How many samples may be skipped: a count, or a share of the samples read."""

    text: str  # as given on the command line
    count: int | None  # None if it is a share
    share: float = 0.0  # in [0, 1]

    @classmethod
    def parse(cls, text: str) -> Tolerance:
        """Parse a count such as 20 or a share such as 0.1%. Raises UsageError for anything else.

        >>> Tolerance.parse("0.1%").allows(1, 1000), Tolerance.parse("20").allows(21, 1000)
        (True, False)
        """
        number = text.removesuffix("%")
        if is_decimal(text) and "." not in text:
            return cls(text, int(text))
        if text.endswith("%") and is_decimal(number) and float(number) <= 100:
            return cls(text, None, float(number) / 100)
        raise UsageError(
            f"--max-skip {text!r} is neither a count nor a percentage; use, for example, 20 or 0.1%"
        )

    def allows(self, skipped: int, read: int) -> bool:
        """Whether `skipped` of `read` samples are within the tolerance."""
        return skipped <= (self.share * read if self.count is None else self.count)


@dataclass
class SkipLog:
    """Counts skipped samples and writes a JSON line for each to `path`.

    The file is created with the first line. With `path` None samples are only counted.
    """

    path: Path | None
    counts: Counter[str] = field(default_factory=Counter)  # by reason
    first: str = ""  # the first skipped sample that is an error, for messages
    _file: TextIO | None = None

    def add(self, file: Path, place: str | int, reason: str, detail: str, count: int = 1) -> None:
        """Record a skipped sample, or `count` of them in a line.

        `place` is its row number or the name of its tar member.
        """
        where = f"row {place}" if isinstance(place, int) else f"member {place}"
        self.counts[reason] += count
        if reason not in EXPECTED:
            self.first = self.first or f"{file}, {shortened(where)}: {detail}"
        if self.path is None:
            return
        if self._file is None:
            # A name may have half of a surrogate pair: its escape is valid in JSON.
            self._file = self.path.open("w", encoding="utf-8", errors="backslashreplace")
        row = {"file": file.name, "place": where, "reason": reason, "detail": detail}
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def check(self, tolerance: Tolerance, read: int) -> None:
        """Raise TooManySkipped, naming the first skipped sample, if there are too many.

        Failed downloads and duplicates are not errors of the data and do not count.
        """
        errors = Counter({why: n for why, n in self.counts.items() if why not in EXPECTED})
        if not tolerance.allows(errors.total(), read - self.counts.total() + errors.total()):
            raise TooManySkipped(
                f"{errors.total()} of {read} samples cannot be used ({_listed(errors)}), "
                f"more than --max-skip {tolerance.text}; the first: {self.first}"
            )

    def summary(self) -> str:
        """The counts by reason, the most frequent first, such as "broken image 3, no image 1"."""
        return _listed(self.counts)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
