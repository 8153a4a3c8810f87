"""A pair as read from a source, the sample made of it, with its key, and what is skipped."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from vlcpctl.core.errors import TooManySkipped, UsageError
from vlcpctl.core.words import is_decimal, shortened
from vlcpctl.data.images.header import MAX_BYTES, BrokenImage, Bytes, decode_fully, read_header
from vlcpctl.files.ids import sample_key

# The distinct values, sorted, of each column in --keep-columns; () without any such column.
KeptValues = tuple[tuple[str, ...], ...]

NO_IMAGE = "no image"
NO_TEXT = "caption that is not text"
FAILED_DOWNLOAD = "failed download"  # of img2dataset
DUPLICATE = "duplicate"
EXPECTED = frozenset({FAILED_DOWNLOAD, DUPLICATE})  # no errors, so that --max-skip ignores them


class UnusablePair(ValueError):
    """A pair that has to be skipped; `reason` is the category to count, `detail` the message."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


class Pair(NamedTuple):
    """An image with its captions as read from a source.

    If the image could not be read, `image` is None, `flaw` says why, and the pair is counted as
    skipped under `reason`. The fields from `key` on are those that `identify` adds.
    """

    place: str | int  # row number in a file, or member name in a tar
    source_key: str | None
    image: Bytes | None
    captions: list[str]
    label: str | None
    value: str | int | float | None  # value of the column that determines the task
    split: str | None
    flaw: str | None = None
    kept: KeptValues = ()
    reason: str = NO_IMAGE
    where: tuple[Path, int] | None = None  # the tar with the image, and its offset there
    key: str = ""
    kind: str = ""  # jpg, png or webp
    width: int = 0
    height: int = 0
    sha256: str = ""  # of the image file

    @property
    def data(self) -> Bytes:
        """The bytes of the image of a pair that has one."""
        assert self.image is not None, "a pair that can be used has an image"
        return self.image


def identify(pair: Pair, *, decode: bool = False) -> Pair:
    """The pair, checked and with its key and hash, without empty captions.

    `decode` also decodes every pixel. Raises UnusablePair if the image is missing, damaged or too
    large, or if every caption is empty.
    """
    image = pair.image
    if image is None:
        raise UnusablePair(pair.reason, pair.flaw or pair.reason)
    captions = list(filter(str.strip, pair.captions))
    if not captions:
        raise UnusablePair(
            "empty caption", "every caption is empty" if pair.captions else "no caption"
        )
    if len(image) > MAX_BYTES:
        raise UnusablePair(
            "broken image", f"too large: {len(image)} bytes, the limit is {MAX_BYTES}"
        )
    try:
        kind, width, height = read_header(image)
        if decode:
            decode_fully(image)
    except BrokenImage as error:
        raise UnusablePair("broken image", str(error)) from error
    sha256 = hashlib.sha256(image).hexdigest()
    added = (sample_key(sha256, captions), kind, width, height, sha256)
    # The constructor of a NamedTuple is a Python function and takes three times as long.
    return tuple.__new__(Pair, (*pair[:3], captions, *pair[4:11], *added))


def distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    """The distinct values, sorted, without those that are None.

    >>> distinct(["b", None, "a", "b"])
    ('a', 'b')
    """
    return tuple(sorted({value for value in values if value is not None}))


def united(some: Iterable[Iterable[str]], others: Iterable[Iterable[str]]) -> KeptValues:
    """For each kept column, the distinct values of two rows that became one sample.

    >>> united((("1",), ()), (("1", "2"), ("x",)))
    (('1', '2'), ('x',))
    """
    return tuple(distinct((*values, *more)) for values, more in zip(some, others, strict=True))


# -- skipped samples: count them, list them, and fail if there are too many


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
