"""The two records of splitting: a pair as read from a source, and a sample with key and hash."""

from __future__ import annotations

from typing import NamedTuple

Bytes = bytes | memoryview


class Pair(NamedTuple):
    """An image with its captions as read from a source.

    If the image could not be read, `image` is None and `flaw` is the reason.
    """

    place: str | int  # row number in a file, or member name in a tar
    source_key: str | None
    image: Bytes | None
    captions: list[str]
    label: str | None
    value: str | int | float | None  # value of the column that determines the task
    split: str | None
    flaw: str | None = None


class Sample(NamedTuple):
    """A usable pair: its image's header was checked, and its key and hash are computed."""

    key: str
    source_key: str | None
    image: Bytes
    kind: str  # jpg, png or webp
    captions: list[str]
    label: str | None
    width: int
    height: int
    sha256: str  # of the image file
