"""Our header reader and Pillow agree on files of every mode, whole and damaged; all decode."""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from itertools import product

import numpy as np
import pytest
from PIL import Image
from support.hostile import check_memory, mutated

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.header import FORMATS, BrokenImage, decode_fully, read_header
from vlcpctl.data.images.transforms import decode_image

# Pillow's remarks on metadata; the package turns them off, pytest on again.
pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning")

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 37, 4), dtype=np.uint8)
FRAMES = [Image.fromarray(np.roll(PIXELS, shift, 0)) for shift in range(3)]
WIDE = Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 257)
TURNED = Image.Exif()
TURNED[0x0112] = 6


def encoded(kind: str, image: Image.Image | str = "RGB", **options: object) -> bytes:
    if isinstance(image, str):
        image = FRAMES[0].convert(image)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(depth: int, colour: int, *, see_through: bool, interlaced: bool = False) -> bytes:
    """A PNG of 3 x 2 pixels in a form that Pillow does not write."""

    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = b"\0" + bytes(-(-3 * channels * depth // 8))
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 2, depth, colour, 0, 0, interlaced))]
    if colour == 3:
        parts.append(chunk(b"PLTE", bytes(3 * 2**depth)))
    if see_through and colour < 4:
        parts.append(chunk(b"tRNS", {0: b"\0\1", 2: b"\0\1" * 3, 3: b"\1\2"}[colour]))
    passes = [row, row] if not interlaced else [b"\0" + bytes(40)] * 9
    parts += [chunk(b"IDAT", zlib.compress(b"".join(passes))), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


animated = {"save_all": True, "append_images": FRAMES[1:]}
WHOLE = {
    **{f"jpeg {mode}": encoded("JPEG", mode) for mode in ("RGB", "L", "CMYK", "YCbCr")},
    "jpeg progressive": encoded("JPEG", progressive=True),
    "jpeg subsampled": encoded("JPEG", subsampling=2, quality=50),
    "jpeg exif": encoded("JPEG", exif=TURNED),
    "jpeg optimized": encoded("JPEG", optimize=True, restart_marker_blocks=2, comment=b"hi"),
    "jpeg profile": encoded("JPEG", icc_profile=b"x" * 300),
    "mpo": encoded("MPO", FRAMES[0].convert("RGB"), save_all=True),
    **{f"png {mode}": encoded("PNG", mode) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")},
    "png 16 bits": encoded("PNG", WIDE),
    "png transparent palette": encoded("PNG", "P", transparency=3),
    "png exif": encoded("PNG", exif=TURNED),
    "png animated": encoded("PNG", FRAMES[0], **animated),
    "webp": encoded("WEBP"),
    "webp lossless": encoded("WEBP", lossless=True),
    "webp alpha": encoded("WEBP", "RGBA"),
    "webp alpha lossless": encoded("WEBP", "RGBA", lossless=True),
    "webp exif": encoded("WEBP", exif=TURNED),
    "webp animated": encoded("WEBP", FRAMES[0], **animated),
}
PNG_FORMS = [
    *product((1, 2, 4, 8, 16), (0,)),
    *product((1, 2, 4, 8), (3,)),
    *product((8, 16), (2, 4, 6)),
]


def ours(data: bytes) -> tuple[tuple[int, int] | None, str]:
    try:
        return read_header(data)[1:], ""
    except BrokenImage as error:
        return None, str(error)


def pillows(data: bytes, *, load: bool = False) -> tuple[int, int] | None:
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if load:
                image.load()
            return image.size
    except Exception:  # noqa: BLE001 - whatever Pillow raises, it is a no
        return None


@pytest.mark.parametrize("name", WHOLE)
def test_every_mode_is_accepted_and_decodes_to_rgb(name: str) -> None:
    data = WHOLE[name]
    assert ours(data)[0] == pillows(data, load=True) == (37, 13)
    kind = name.split(maxsplit=1)[0].replace("jpeg", "jpg").replace("mpo", "jpg")
    assert read_header(memoryview(data)) == (kind, 37, 13)
    image = decode_image(data)
    assert (image.mode, image.size) == ("RGB", (37, 13))
    decode_fully(data)


@pytest.mark.parametrize("name", WHOLE)
def test_an_image_cut_short_is_broken(name: str) -> None:
    data = WHOLE[name]
    for length in (0, 1, 5, 12, 20, 30, len(data) // 2, len(data) - 3):
        assert ours(data[:length])[0] is None, length
    if not name.startswith("webp"):  # as cameras append it
        assert ours(data + b"MotionPhoto" * 9)[0] == (37, 13)


def test_damage_inside_is_found_by_decoding_alone() -> None:
    data = bytearray(WHOLE["png RGBA"])
    data[60] ^= 0xFF
    read_header(data)
    with pytest.raises(BrokenImage, match="does not decode"):
        decode_fully(bytes(data))


@pytest.mark.parametrize("form", PNG_FORMS, ids=str)
def test_every_form_of_png_is_accepted_and_decodes_to_rgb(form: tuple[int, int]) -> None:
    for see_through, interlaced in product((False, True), repeat=2):
        data = png(*form, see_through=see_through, interlaced=interlaced)
        assert ours(data)[0] == (3, 2)
        assert decode_image(data).mode == "RGB"


def test_the_first_frame_of_an_animation_is_used() -> None:
    expected = decode_image(encoded("PNG", "RGBA"))
    assert decode_image(WHOLE["png animated"]).tobytes() == expected.tobytes()


def test_other_formats_are_refused() -> None:
    for kind in ("GIF", "BMP", "TIFF", "PPM", "ICO"):
        assert ours(encoded(kind))[1] == "not a JPEG, PNG or WebP"


def test_junk_between_the_segments_of_a_jpeg_is_skipped_as_decoders_do() -> None:
    data = WHOLE["jpeg RGB"]
    place = data.index(b"\xff\xdb")
    junk = data[:place] + b"junk" + data[place:]
    assert ours(junk)[0] == pillows(junk, load=True) == (37, 13)


def chunked(*parts: bytes) -> bytes:
    """A PNG with chunks after its header."""
    data = WHOLE["png RGB"]
    return data[:33] + b"".join(parts) + data[33:]


def segmented(marker: int, data: bytes) -> bytes:
    """A JPEG with a segment after its start."""
    whole = WHOLE["jpeg RGB"]
    return whole[:2] + struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data + whole[2:]


LONG = zlib.compress(bytes(3 << 20))  # of more than Pillow's MAX_TEXT_CHUNK
METADATA = {
    "png text": chunked(chunk(b"zTXt", b"prompt\0\0" + LONG)),
    "png international text": chunked(chunk(b"iTXt", b"prompt\0\1\0\0\0" + LONG)),
    "png texts": chunked(*[chunk(b"tEXt", b"%d\0" % one + b"x" * (9 << 20)) for one in range(8)]),
    "png text after the pixels": WHOLE["png RGB"][:-12]
    + chunk(b"zTXt", b"prompt\0\0" + LONG)
    + WHOLE["png RGB"][-12:],
    "png profile": chunked(chunk(b"iCCP", b"print\0\0" + LONG)),
    "png profile without a name": chunked(chunk(b"iCCP", b"print")),
    "png gamma": chunked(chunk(b"gAMA", b"")),
    "png frame": chunked(chunk(b"acTL", bytes(3)), chunk(b"fcTL", bytes(26))),
    "jpeg profile": segmented(0xE2, b"ICC_PROFILE\0"),
    "jpeg adobe": segmented(0xEE, b"Adobe"),
    "jpeg jfif": segmented(0xE0, b"JFIF\0"),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_that_pillow_refuses_does_not_keep_pixels_from_being_decoded(name: str) -> None:
    data = METADATA[name]
    assert ours(data)[0] == (37, 13)
    decode_fully(data)
    plain = decode_image(WHOLE["png RGB" if name.startswith("png") else "jpeg RGB"])
    assert decode_image(data).tobytes() == plain.tobytes()


def test_a_text_of_gigabytes_is_not_decompressed() -> None:
    data = chunked(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(300 << 20))))
    check_memory(lambda: decode_image(data), 20)


def without_scan(data: bytes) -> bytes:
    return data[: data.index(b"\xff\xda")] + b"\xff\xd9"


CUT = {
    "png checksum": WHOLE["png P"][:30] + b"x" + WHOLE["png P"][31:],
    "webp metadata": WHOLE["webp exif"].replace(b"EXIF", b"EXIFxx"),
    "jpeg tables": WHOLE["jpeg RGB"].replace(b"\xff\xdb\x00\x43", b"\xff\xdb\x00\x40", 1),
    "jpeg depth": WHOLE["jpeg RGB"].replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c"),
    "png pixels": WHOLE["png RGB"][:200] + WHOLE["png RGB"][-12:],
    "png transparency": chunked(chunk(b"tRNS", b"\0")),
    "png palette": WHOLE["png P"][:33]
    + chunk(b"PLTE", bytes(1200))
    + WHOLE["png P"][WHOLE["png P"].index(b"IDAT") - 4 :],
    "jpeg scan": without_scan(WHOLE["jpeg RGB"]),
    "jpeg codes": WHOLE["jpeg RGB"].replace(b"\xff\xc4\x00", b"\xff\xc4\x01", 1),
    "jpeg scan header": WHOLE["jpeg RGB"].replace(b"\xff\xda\x00\x0c\x03", b"\xff\xda\x00\x0c\x09"),
    "webp frame": WHOLE["webp"][:20] + b"\xff\xff\xff" + WHOLE["webp"][23:],
    "webp chunk": WHOLE["webp"][:16] + b"\xff\xff\xff\x7f" + WHOLE["webp"][20:],
    "webp lossless": WHOLE["webp lossless"][:24] + b"\xff" + WHOLE["webp lossless"][25:],
}


@pytest.mark.parametrize("name", CUT)
def test_what_no_decoder_reads_is_refused_by_its_header(name: str) -> None:
    assert ours(CUT[name])[0] is pillows(CUT[name], load=True) is None


def check_agreement(count: int, seed: int) -> None:
    """Same verdict and size on damaged files, but for the differences listed here.

    Ours alone accepts, for less than one in a hundred, damage between the frame header of a JPEG
    and its pixels, or in the frames of an animated WebP: like damage in the pixels, it is found by
    decoding. Pillow alone accepts files that are cut off, whose pixels it mostly cannot load; the
    few that it can lack only an end mark, and are refused because they were cut off. It also reads
    some JPEG headers that lead nowhere, and opens larger images than we decode.
    """
    draw = np.random.default_rng(seed)
    names = list(WHOLE)
    seen: Counter[str] = Counter()
    for number in range(count):
        name = names[number % len(names)]
        data = mutated(WHOLE[name], draw)
        (mine, why), other = ours(data), pillows(data)
        if mine and other:
            assert mine == other, name
        elif mine:
            seen["ours"] += 1
            assert name.split()[0] in ("jpeg", "mpo", "webp"), name
        elif other:
            loads = pillows(data, load=True)
            allowed = ("truncated", "too large")
            assert why.startswith(allowed) or not loads, f"{name}: {why}"
        try:
            decode_image(data, "x.png")
        except BadInput as error:
            assert "\n" not in str(error)  # noqa: PT017 - most of them are refused
    assert seen["ours"] <= max(3, count / 100)


def test_pillow_agrees_on_damaged_files() -> None:
    check_agreement(300, 0)


def test_a_large_image_of_few_bytes_is_refused_before_it_is_decoded() -> None:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 6, 0, 0, 0)
    data = WHOLE["png RGBA"]
    bomb = data[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[33:]

    def decode() -> None:
        with pytest.raises(BadInput, match="30000 x 30000"):
            decode_image(bomb)

    check_memory(decode, 20)
