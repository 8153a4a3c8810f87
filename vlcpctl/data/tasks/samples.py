"""A pair as read from a source, and the sample made from it: checked, hashed, with its key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
