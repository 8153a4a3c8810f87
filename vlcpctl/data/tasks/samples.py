"""A pair as read from a source, and the sample made from it: checked, hashed, with its key."""

from __future__ import annotations

import hashlib
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


def identify(pair: Pair, *, decode: bool = False) -> Sample:
    """The sample of a pair, without its empty captions; `decode` also decodes every pixel.

    Raises UnusablePair if the image is missing, damaged or too large, or if every caption is empty.
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
    key = sample_key(sha256, captions)
    label, source_key, kept = pair.label, pair.source_key, pair.kept
    # The constructor of a NamedTuple is a Python function and takes three times as long.
    fields = (key, source_key, image, kind, captions, label, width, height, sha256, kept, None)
    return tuple.__new__(Sample, fields)


class Pair(NamedTuple):
    """An image with its captions as read from a source.

    If the image could not be read, `image` is None, `flaw` says why, and the pair is counted as
    skipped under `reason`.
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
    offset: int | None = None  # of the image in its tar


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
    kept: KeptValues = ()
    where: tuple[Path, int] | None = None  # tar and offset, if the image stays there
