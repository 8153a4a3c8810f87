"""Turn a pair read from a source into a sample: check the image, hash it, compute its key."""

from __future__ import annotations

import hashlib

from vlcpctl.core.hashing import sample_key
from vlcpctl.data.images import MAX_BYTES, BrokenImage, decode_fully, look
from vlcpctl.data.pairs import Pair, Sample


class Unfit(ValueError):
    """A pair that has to be skipped; `reason` is the category to count, `detail` the message."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


def identify(pair: Pair, *, decode: bool = False) -> Sample:
    """The sample of a pair, without its empty captions; `decode` also decodes every pixel.

    Raises Unfit if the image is missing, damaged or too large, or if every caption is empty.
    """
    image = pair.image
    if image is None:
        raise Unfit("no image", pair.flaw or "no image")
    captions = list(filter(str.strip, pair.captions))
    if not captions:
        raise Unfit("empty caption", "every caption is empty" if pair.captions else "no caption")
    if len(image) > MAX_BYTES:
        raise Unfit("broken image", f"too large: {len(image)} bytes, the limit is {MAX_BYTES}")
    try:
        kind, width, height = look(image)
        if decode:
            decode_fully(image)
    except BrokenImage as error:
        raise Unfit("broken image", str(error)) from error
    sha256 = hashlib.sha256(image).hexdigest()
    key = sample_key(sha256, captions)
    label, source_key = pair.label, pair.source_key
    # The constructor of a NamedTuple is a Python function and takes three times as long.
    fields = (key, source_key, image, kind, captions, label, width, height, sha256)
    return tuple.__new__(Sample, fields)
