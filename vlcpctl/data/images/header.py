"""Inspect a JPEG, PNG or WebP without decoding it: its format, its size, whether it is complete."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vlcpctl.core.errors import LFS_START, first_line

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 40_000_000
MAX_BYTES = 256 * 2**20
KINDS = ("jpg", "png", "webp")
FORMATS = ("JPEG", "PNG", "WEBP")  # as Pillow names them
# What Pillow raises for damaged files, besides its DecompressionBombError. Its readers assume
# well-formed files, so that a malformed one can end in an error of any of these kinds.
DECODING_FAILS = (
    *(OSError, SyntaxError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError),
    *(EOFError, RuntimeError, AssertionError, struct.error, zlib.error),
)

_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_JPEG_END = b"\xff\xd9"
_JPEG_SCAN = 0xDA
_JPEG_CODES = 0xC4
_JPEG_METADATA = frozenset((*range(0xE0, 0xF0), 0xFE))  # APP0 to APP15, and comments
_JPEG_COLOURS = (0xE0, 0xEE)  # the JFIF and Adobe headers, which decide what the channels are
_JPEG_COLOURS_LENGTH = 14  # the least at which a decoder heeds them
_JPEG_SEGMENT = struct.Struct(">BBH")
# Frames that libjpeg-turbo decodes: baseline, extended, progressive and lossless with Huffman
# codes, and two with arithmetic codes. Others, such as hierarchical ones, it refuses.
_JPEG_FRAMES = frozenset((0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA))
_JPEG_TABLES = 0xDB
_JPEG_BARE = frozenset((0x01, 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)))  # without a length
# Bit depth and colour type.
_PNG_FORMS = frozenset({*product((1, 2, 4, 8, 16), (0,)), *product((1, 2, 4, 8), (3,))})
_PNG_FORMS |= frozenset(product((8, 16), (2, 4, 6)))
_PNG_HEADER = struct.Struct(">I4sIIBBBBBII4s")  # the first chunk, and the start of the next one
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_PIXELS = frozenset((b"PLTE", b"tRNS", b"IDAT", b"IEND"))
_PNG_TRANSPARENCY = {0: 2, 2: 6}  # the least bytes by colour type; others may have none
_PNG_PALETTES = {b"PLTE": 768, b"tRNS": 256}  # the most bytes, where pixels are in a palette
_PNG_PALETTE = 3
_WEBP_IMAGES = frozenset((b"VP8 ", b"VP8L", b"ANMF"))

Bytes = bytes | memoryview
T = TypeVar("T")


class BrokenImage(ValueError):
    """The bytes are not a usable image; the message is the reason."""


class ImageHeader(NamedTuple):
    """An image's format and size according to its header."""

    kind: str  # jpg, png or webp
    width: int  # pixels
    height: int


def read_header(data: Bytes) -> ImageHeader:
    """Format, width and height from the header, without decoding.

    For files with several images, such as animations, the first one counts; EXIF orientation is
    ignored. Damage in the pixels is not found, nor is some damage after a JPEG's frame header or in
    the frames of an animation; see `decode_fully`.

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
        elif data[: len(LFS_START)] == LFS_START:
            raise BrokenImage("a Git LFS pointer, not the image: run 'git lfs pull'")
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

    _hush_pillow()
    try:
        with_image(data, lambda image: image.load())
    except (*DECODING_FAILS, Image.DecompressionBombError) as error:
        raise BrokenImage(f"does not decode: {first_line(error)}") from error


def with_image(data: Bytes, use: Callable[[Image], T]) -> T:
    """What `use` returns for the opened image.

    Pillow refuses an image for metadata that is damaged or large, such as a colour profile of more
    than 1 MiB; such an image is read without its metadata.
    """
    from PIL import Image

    def used(data: Bytes) -> T:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return use(image)

    try:
        return used(data)
    except DECODING_FAILS:
        return used(_without_metadata(data))


def _without_metadata(data: Bytes) -> bytes:
    """A JPEG or PNG with the parts alone that decide its pixels; anything else unchanged."""
    if data[:8] == _PNG_START:
        return b"".join([data[:33], *_png_pixels(data)])
    return b"".join(_jpeg_pixels(data)) if data[:3] == b"\xff\xd8\xff" else bytes(data)


def _png_pixels(data: Bytes) -> Iterator[Bytes]:
    at = 33
    while at + 12 <= len(data):
        size, name = _PNG_CHUNK.unpack_from(data, at)
        if name in _PNG_PIXELS:
            yield data[at : at + 12 + size]
        at += 12 + size


def _jpeg_pixels(data: Bytes) -> Iterator[Bytes]:
    done, at, marker = 0, 2, 0
    while marker != _JPEG_SCAN:
        at, marker = _find_jpeg_segment(data, at, _JPEG_METADATA)
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if marker != _JPEG_SCAN and not (
            marker in _JPEG_COLOURS and length >= _JPEG_COLOURS_LENGTH
        ):
            yield data[done:at]
            done = at + 2 + length
        at += 2 + length
    yield data[done:]


@cache  # a filter is global, and slow to add
def _hush_pillow() -> None:
    """Suppress Pillow's warnings about metadata, which take several lines for each image."""
    warnings.filterwarnings("ignore", module=r"PIL\.")


def _read_jpeg(data: Bytes) -> ImageHeader:
    at, frame = _find_jpeg_segment(data, 2, _JPEG_FRAMES)
    if frame not in _JPEG_FRAMES:
        raise BrokenImage("a JPEG without a frame header")
    bits, height, width, layers = struct.unpack_from(">BHHB", data, at + 4)
    if bits != 8 or layers not in (1, 3, 4):
        raise BrokenImage(f"a JPEG of {layers} channels of {bits} bits, which no reader decodes")
    at, _ = _find_jpeg_segment(data, at, frozenset())
    # Phones append data of their own after the image. Compressed data never contains the end
    # marker (0xFF bytes are escaped), so one after the start of the first scan is the real end.
    if data[-2:] != _JPEG_END and _JPEG_END not in bytes(data[at:]):
        raise BrokenImage("truncated: a JPEG without its end marker")
    length, count = struct.unpack_from(">HB", data, at + 2)
    if not 1 <= count <= layers or length != 6 + 2 * count:
        raise BrokenImage("a JPEG with a damaged scan header")
    return ImageHeader("jpg", width, height)


def _find_jpeg_segment(data: Bytes, at: int, wanted: frozenset[int]) -> tuple[int, int]:
    """Offset and marker of the first segment whose marker is wanted, or else of the first scan."""
    segment = _JPEG_SEGMENT.unpack_from
    while True:
        start, marker, length = segment(data, at)
        if start != 0xFF:  # decoders skip what is between segments
            at = _next_marker(data, at)
        elif marker in wanted or marker == _JPEG_SCAN:
            return at, marker
        elif marker in (0xFF, 0x00):  # a fill byte, or an escaped one between segments
            at += 1 if marker else 2
        elif marker in _JPEG_BARE:
            at += 2
        elif marker < 0xC0:
            raise BrokenImage("a JPEG with a damaged header")
        else:
            if marker in (_JPEG_TABLES, _JPEG_CODES):
                _check_tables(data, at + 4, at + 2 + length, of_codes=marker == _JPEG_CODES)
            at += 2 + max(length, 2)


def _next_marker(data: Bytes, at: int) -> int:
    found = bytes(data[at:]).find(b"\xff")
    if found < 0:
        raise BrokenImage("a JPEG with a damaged header")
    return at + found


def _check_tables(data: Bytes, at: int, end: int, *, of_codes: bool) -> None:
    """Raise BrokenImage if a segment does not consist of whole tables of quantization or codes."""
    while at < end:
        if of_codes:
            at += 17 + sum(data[at + 1 : at + 17])
        else:
            at += 65 if data[at] < 16 else 129
    if at > end:
        raise BrokenImage("a JPEG with a damaged table")


def _read_png(data: Bytes) -> ImageHeader:
    fields = _PNG_HEADER.unpack_from(data, 8)
    size, name, width, height, depth, colour, _, filtering, _, checksum, size_2, name_2 = fields
    if name != b"IHDR" or size != 13 or zlib.crc32(data[12:29]) != checksum:
        raise BrokenImage("a PNG without a header chunk, or with a damaged one")
    if (depth, colour) not in _PNG_FORMS or filtering:
        raise BrokenImage("a PNG of an unknown kind")
    if width * height <= MAX_PIXELS:
        _check_png_chunks(data, size_2, name_2, colour)
    if data[-12:] != _PNG_END and _PNG_END not in bytes(data):
        raise BrokenImage("truncated: a PNG without its end chunk")
    return ImageHeader("png", width, height)


def _check_png_chunks(data: Bytes, size: int, name: bytes, colour: int) -> None:
    """Raise BrokenImage if a chunk from the second one to the pixels is damaged or cut off.

    The checksum of the pixels is not compared.
    """
    at = 33
    while name != b"IDAT":
        end = at + 8 + size
        unfit = name == b"tRNS" and size < _PNG_TRANSPARENCY.get(colour, 0)
        unfit |= colour == _PNG_PALETTE and size > _PNG_PALETTES.get(name, size)
        if unfit or zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise BrokenImage(f"a PNG with a damaged chunk at byte {at}")
        at = end + 4
        size, name = _PNG_CHUNK.unpack_from(data, at)
    while name == b"IDAT":
        at += 12 + size
        if at + 8 > len(data):
            raise BrokenImage("truncated: a PNG whose pixels are cut off")
        size, name = _PNG_CHUNK.unpack_from(data, at)


def _read_webp(data: Bytes) -> ImageHeader:
    length, _, chunk = struct.unpack_from("<I4s4s", data, 4)
    if len(data) < length + 8:
        raise BrokenImage(f"truncated: a WebP of {len(data)} bytes that says {length + 8}")
    size = int.from_bytes(data[16:20], "little")
    if size > length - 12:
        raise BrokenImage("a WebP with a damaged chunk")
    if chunk == b"VP8 ":
        tag = int.from_bytes(data[20:23], "little")  # a key frame, shown, and its first part's size
        sync, width, height = struct.unpack_from("<3sHH", data, 23)
        if sync != b"\x9d\x01\x2a" or tag & 0x11 != 0x10 or tag >> 5 > size - 10:
            raise BrokenImage("a WebP without a frame header")
        return ImageHeader("webp", width & 0x3FFF, height & 0x3FFF)
    if chunk == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F or bits >> 29:
            raise BrokenImage("a WebP without a frame header")
        return ImageHeader("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if chunk == b"VP8X":
        _check_webp_chunks(data, length + 8)
        wide, high = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return ImageHeader("webp", wide, high)
    raise BrokenImage("a WebP of an unknown kind")


def _check_webp_chunks(data: Bytes, end: int) -> None:
    """Raise BrokenImage if the chunks of an extended WebP do not fill it, or none is an image."""
    at, has_image = 12, False
    while at < end:
        name, size = struct.unpack_from("<4sI", data, at)
        has_image = has_image or name in _WEBP_IMAGES
        at += 8 + size + size % 2
    if at > end or not has_image:
        raise BrokenImage("a WebP with a damaged chunk, or without an image")
