"""Inspect a JPEG, PNG or WebP without decoding it: its format, its size, whether it is complete."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

MAX_PIXELS = 40_000_000
MAX_BYTES = 256 * 2**20
KINDS = ("jpg", "png", "webp")

_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_JPEG_END = b"\xff\xd9"
_JPEG_SCAN = 0xDA
_JPEG_SEGMENT = struct.Struct(">BBH")
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

Bytes = bytes | memoryview


class BrokenImage(ValueError):
    """The bytes are not a usable image; the message is the reason."""


class ImageHeader(NamedTuple):
    """An image's format and size according to its header."""

    kind: str  # jpg, png or webp
    width: int  # pixels
    height: int


def read_header(data: Bytes) -> ImageHeader:
    """Format, width and height from the header, without decoding.

    Raises BrokenImage if the format is unknown, the header is damaged, the end is missing, or the
    image has more than `MAX_PIXELS`.

    >>> read_header(b"GIF89a")
    Traceback (most recent call last):
    vlcpctl.data.images.header.BrokenImage: not a JPEG, PNG or WebP
    """
    try:
        if data[:3] == b"\xff\xd8\xff":
            found = _read_jpeg(data)
        elif data[:8] == _PNG_START:
            found = _read_png(data)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            found = _read_webp(data)
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
    """Decode every pixel. Raises BrokenImage if that fails."""
    from PIL import Image

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


def _read_jpeg(data: Bytes) -> ImageHeader:
    at, frame = _find_jpeg_segment(data, 2, _JPEG_FRAMES)
    if frame not in _JPEG_FRAMES:
        raise BrokenImage("a JPEG without a frame header")
    height, width = struct.unpack_from(">HH", data, at + 5)
    if data[-2:] != _JPEG_END:
        # Phones append data of their own after the image. Compressed data never contains the end
        # marker (0xFF bytes are escaped), so one after the start of the first scan is the real end.
        at, _ = _find_jpeg_segment(data, at, frozenset())
        if _JPEG_END not in bytes(data[at:]):
            raise BrokenImage("truncated: a JPEG without its end marker")
    return ImageHeader("jpg", width, height)


def _find_jpeg_segment(data: Bytes, at: int, wanted: frozenset[int]) -> tuple[int, int]:
    """Offset and marker of the first segment whose marker is wanted, or else of the first scan."""
    segment = _JPEG_SEGMENT.unpack_from
    while True:
        start, marker, length = segment(data, at)
        if start != 0xFF:
            raise BrokenImage("a JPEG with a damaged header")
        if marker in wanted or marker == _JPEG_SCAN:
            return at, marker
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # markers without a length
            at += 2
        else:
            at += 2 + length


def _read_png(data: Bytes) -> ImageHeader:
    name, width, height = struct.unpack_from(">4sII", data, 12)
    if name != b"IHDR":
        raise BrokenImage("a PNG without a header chunk")
    if data[-12:] != _PNG_END and _PNG_END not in bytes(data):
        raise BrokenImage("truncated: a PNG without its end chunk")
    return ImageHeader("png", width, height)


def _read_webp(data: Bytes) -> ImageHeader:
    length, _, chunk = struct.unpack_from("<I4s4s", data, 4)
    if len(data) < length + 8:
        raise BrokenImage(f"truncated: a WebP of {len(data)} bytes that says {length + 8}")
    if chunk == b"VP8 ":
        sync, width, height = struct.unpack_from("<3sHH", data, 23)
        if sync != b"\x9d\x01\x2a":
            raise BrokenImage("a WebP without a frame header")
        return ImageHeader("webp", width & 0x3FFF, height & 0x3FFF)
    if chunk == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F:
            raise BrokenImage("a WebP without a frame header")
        return ImageHeader("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if chunk == b"VP8X":
        wide, high = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return ImageHeader("webp", wide, high)
    raise BrokenImage("a WebP of an unknown kind")
