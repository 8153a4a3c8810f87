"""Look at the bytes of a JPEG, PNG or WebP without decoding it: its kind, its size, and whether it has an end."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

from vlcpctl.data.pairs import Bytes

MAX_PIXELS = 40_000_000
MAX_BYTES = 256 * 2**20
KINDS = ("jpg", "png", "webp")

_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_JPEG_END = b"\xff\xd9"


class BrokenImage(ValueError):
    """The bytes are no image that can be kept; the message is the reason."""


class Look(NamedTuple):
    """What the header of an image says."""

    kind: str
    width: int
    height: int


def look(data: Bytes) -> Look:
    """Kind, width and height by the header; BrokenImage when header or end is not right.

    >>> look(b"GIF89a")
    Traceback (most recent call last):
    vlcpctl.data.images.BrokenImage: not a JPEG, PNG or WebP
    """
    start = bytes(data[:12])
    try:
        if start[:3] == b"\xff\xd8\xff":
            found = _look_jpeg(data)
        elif start[:8] == _PNG_START:
            found = _look_png(data)
        elif start[:4] == b"RIFF" and start[8:] == b"WEBP":
            found = _look_webp(data)
        else:
            raise BrokenImage("not a JPEG, PNG or WebP")
    except (IndexError, struct.error) as error:
        raise BrokenImage("truncated in its header") from error
    pixels = found.width * found.height
    if pixels == 0:
        raise BrokenImage("width or height is 0")
    if pixels > MAX_PIXELS:
        raise BrokenImage(
            f"too large: {found.width} x {found.height} pixels, the limit is {MAX_PIXELS}"
        )
    return found


def decode_fully(data: Bytes) -> None:
    """Decode every pixel; BrokenImage when that fails."""
    from PIL import Image  # noqa: PLC0415 - wanted with --decode only

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            image.load()
    except (
        OSError,
        SyntaxError,
        ValueError,
        IndexError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise BrokenImage(f"does not decode: {error}") from error


def _look_jpeg(data: Bytes) -> Look:
    at, size = 2, None
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # markers without a length
            at += 2
        elif marker == 0xDA:
            break
        else:
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                size = (data[at + 7] << 8 | data[at + 8], data[at + 5] << 8 | data[at + 6])
            at += 2 + (data[at + 2] << 8 | data[at + 3])
    if size is None or data[at] != 0xFF:
        raise BrokenImage("a JPEG without a frame header")
    # Compressed data never holds the end marker, so one found behind the first scan is the end itself;
    # cameras and phones append their own data to it.
    if bytes(data[-2:]) != _JPEG_END and _JPEG_END not in bytes(data[at:]):
        raise BrokenImage("truncated: a JPEG without its end marker")
    return Look("jpg", *size)


def _look_png(data: Bytes) -> Look:
    name, width, height = struct.unpack_from(">4sII", data, 12)
    if name != b"IHDR":
        raise BrokenImage("a PNG without a header chunk")
    if bytes(data[-12:]) != _PNG_END and _PNG_END not in bytes(data):
        raise BrokenImage("truncated: a PNG without its end chunk")
    return Look("png", width, height)


def _look_webp(data: Bytes) -> Look:
    length, _, chunk = struct.unpack_from("<I4s4s", data, 4)
    if len(data) < length + 8:
        raise BrokenImage(f"truncated: a WebP of {len(data)} bytes that says {length + 8}")
    if chunk == b"VP8 ":
        sync, width, height = struct.unpack_from("<3sHH", data, 23)
        if sync != b"\x9d\x01\x2a":
            raise BrokenImage("a WebP without a frame header")
        return Look("webp", width & 0x3FFF, height & 0x3FFF)
    if chunk == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F:
            raise BrokenImage("a WebP without a frame header")
        return Look("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if chunk == b"VP8X":
        wide, high = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return Look("webp", wide, high)
    raise BrokenImage("a WebP of an unknown kind")
