"""Headers of images, read without decoding."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vlcpctl.data.images.header import BrokenImage, decode_fully, read_header

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 37, 4), dtype=np.uint8)


def encoded(kind: str, mode: str = "RGB", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, kind, **options)
    return file.getvalue()


KINDS = {
    "jpg": encoded("JPEG"),
    "jpg progressive": encoded("JPEG", progressive=True),
    "jpg grey": encoded("JPEG", "L"),
    "jpg exif": encoded("JPEG", exif=b"Exif\0\0" + b"\xff\xd9" * 20),
    "png": encoded("PNG", "RGBA"),
    "png palette": encoded("PNG", "P"),
    "webp lossy": encoded("WEBP"),
    "webp lossless": encoded("WEBP", lossless=True),
    "webp alpha": encoded("WEBP", "RGBA"),
}


@pytest.mark.parametrize("name", KINDS)
def test_size_and_kind_are_those_that_pillow_finds(name: str) -> None:
    for data in (KINDS[name], memoryview(KINDS[name])):
        assert read_header(data) == (name.split(maxsplit=1)[0], 37, 13)


@pytest.mark.parametrize("name", KINDS)
def test_an_image_cut_short_is_broken(name: str) -> None:
    data = KINDS[name]
    for length in (0, 1, 5, 12, 20, 30, len(data) // 2, len(data) - 3):
        with pytest.raises(BrokenImage):
            read_header(data[:length])


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("webp")])
def test_what_a_camera_appends_does_no_harm(name: str) -> None:
    assert read_header(KINDS[name] + b"MotionPhoto" * 9)[1:] == (37, 13)


def test_twenty_thousand_by_twenty_thousand_is_refused_by_its_header() -> None:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    head = (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
    with pytest.raises(BrokenImage, match="20000 x 20000"):
        read_header(head + b"\0\0\0\0IEND\xaeB`\x82")


def test_damage_inside_is_found_by_decoding_alone() -> None:
    data = bytearray(KINDS["png"])
    data[60] ^= 0xFF
    read_header(bytes(data))
    with pytest.raises(BrokenImage, match="does not decode"):
        decode_fully(bytes(data))


@given(
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF"]), st.binary(max_size=200)
)
def test_no_bytes_break_the_reader(start: bytes, rest: bytes) -> None:
    try:
        read_header(start + rest)
    except BrokenImage:
        return
