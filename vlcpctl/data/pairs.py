"""The nouns of splitting: a pair as a source gives it, and a sample that has an identity."""

from __future__ import annotations

from typing import NamedTuple

Bytes = bytes | memoryview


class Pair(NamedTuple):
    """What a source says of one image; `place` is its row, or the name of its member.

    `image` is None and `flaw` says why when the source could not give the bytes.
    """

    place: str | int
    source_key: str | None
    image: Bytes | None
    captions: list[str]
    label: str | None
    value: str | int | float | None  # of the column that decides the task
    split: str | None
    flaw: str | None = None


class Sample(NamedTuple):
    """A pair that is kept: it has a key, a hash, and an image that was looked at."""

    key: str
    source_key: str | None
    image: Bytes
    kind: str  # jpg, png or webp
    captions: list[str]
    label: str | None
    width: int
    height: int
    sha256: str
