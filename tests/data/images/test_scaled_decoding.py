"""JPEGs decoded at a reduced scale: the same crops with slightly different pixels."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from vlcpctl.core.errors import BadInput
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.transforms import (
    TrainView,
    decode_image,
    decode_reduced,
    most_bytes,
    reduction_of,
)


def view(size: int = 32, **how: object) -> ImageTransform:
    return ImageTransform(image_size=size, mean=(0.5,) * 3, std=(0.5,) * 3, **how)  # type: ignore[arg-type]


def encoded(image: Image.Image, kind: str, **how: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


VIEWS = [
    view(crop=crop, resize_mode=mode, flip=flip)
    for crop in ("none", "center", "random")
    for mode in ("shortest", "longest", "squash")
    for flip in (False, True)
]
MODES = {"RGB": "RGB", "grey": "L", "CMYK": "CMYK"}


def smooth(width: int, height: int) -> Image.Image:
    """A picture without sharp edges, in which every place looks different."""
    x, y = np.arange(width) / width, np.arange(height)[:, None] / height
    channels = [255 * x + 0 * y, 255 * y + 0 * x, 127 + 120 * np.sin(9 * x + 7 * y)]
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))


def rendered(data: bytes, transform: ImageTransform, visit: int = 0) -> tuple[np.ndarray, int]:
    """A view, and the reduction with which its image was decoded."""
    made = TrainView(transform, 0, "key", visit)
    image = decode_reduced(data, made.reduction)
    return made.render(image), image.reduction


@pytest.mark.parametrize("transform", VIEWS)
@pytest.mark.parametrize("size", [(320, 200), (201, 333), (300, 300)])
def test_a_scaled_view_shows_the_same_part_of_the_image(
    transform: ImageTransform, size: tuple[int, int]
) -> None:
    data = encoded(smooth(*size), "JPEG", quality=95)
    scaled = replace(transform, jpeg_decode="scaled")
    reductions = set()
    for visit in range(4):
        exact, whole = rendered(data, transform, visit)
        close, reduction = rendered(data, scaled, visit)
        reductions.add(reduction)
        assert whole == 1
        assert np.abs(close.astype(int) - exact).mean() < 2
    assert max(reductions) > 1


@pytest.mark.parametrize(
    ("size", "expected"),
    [((63, 63), 1), ((64, 64), 2), ((512, 64), 2), ((128, 200), 4), ((900, 900), 8)],
)
def test_the_reduction_is_the_largest_that_leaves_enough_pixels(
    size: tuple[int, int], expected: int
) -> None:
    assert reduction_of(size, view(32)) == expected
    assert reduction_of((2000, 2000), view(32, crop="random"), (5, 5, *(5 + n for n in size))) == (
        expected
    )
    enough = reduction_of(size, view(32, resize_mode="longest"))
    assert max(size) // enough >= 32


def test_a_small_crop_of_a_large_image_keeps_its_pixels() -> None:
    data = encoded(smooth(256, 256), "JPEG")
    small = view(32, crop="random", crop_scale=(0.02, 0.04), jpeg_decode="scaled")
    exact = rendered(data, replace(small, jpeg_decode="exact"))[0]
    np.testing.assert_array_equal(rendered(data, small)[0], exact)
    large = replace(small, crop_scale=(0.9, 1.0))
    assert rendered(data, large)[1] == 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("orientation", [1, 6])
def test_jpegs_of_every_kind_are_reduced(mode: str, progressive: bool, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation  # ignored, as when decoding exactly
    picture = smooth(300, 200).convert(MODES[mode])
    data = encoded(picture, "JPEG", progressive=progressive, exif=exif, quality=95)
    transform = view(crop="random", crop_scale=(0.8, 1.0), jpeg_decode="scaled")
    close, reduction = rendered(data, transform)
    exact, _ = rendered(data, replace(transform, jpeg_decode="exact"))
    assert reduction == 4
    assert np.abs(close.astype(int) - exact).mean() < 2


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_other_formats_are_decoded_exactly(kind: str) -> None:
    data = encoded(smooth(300, 200), kind)
    scaled = view(crop="random", flip=True, jpeg_decode="scaled")
    exact, _ = rendered(data, replace(scaled, jpeg_decode="exact"))
    np.testing.assert_array_equal(rendered(data, scaled)[0], exact)


# 32 x 32 pixels of the brightness 90, which Pillow cannot write.
LOSSLESS = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffc3000b080020002001011100ffc40015000101000000000000"
    "00000000000000000006ffda00080101000100009900000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000001ffd9"
)


def test_a_lossless_jpeg_which_has_no_scales_is_decoded_exactly() -> None:
    assert np.asarray(decode_image(LOSSLESS)).mean() == 90
    made = TrainView(view(8, jpeg_decode="scaled"), 0, "key", 0)
    image = decode_reduced(LOSSLESS, made.reduction)
    assert (image.reduction, image.size) == (1, (32, 32))
    assert image.fits(made.reduction)
    assert made.render(image).mean() == 90


def test_damaged_jpegs_are_refused_with_the_same_message() -> None:
    whole = encoded(smooth(300, 200), "JPEG")
    middle = len(whole) // 2
    for data in (whole[:middle], whole[:30], whole[:2] + whole[3:], b"", whole[:20] + whole[40:]):
        messages = []
        for how in ("exact", "scaled"):
            made = TrainView(view(jpeg_decode=how), 0, "key", 0)
            with pytest.raises(BadInput, match="the image of key k cannot be decoded") as refused:
                decode_reduced(data, made.reduction, "the image of key k")
            messages.append(str(refused.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize("transform", [*VIEWS, view(crop="random", crop_scale=(0.9, 1.0))])
def test_the_memory_of_decoded_images_is_not_underestimated(transform: ImageTransform) -> None:
    sizes = [(40, 30), (320, 200), (201, 333), (512, 512), (1500, 900)]
    widths, heights = (np.array(side, dtype=np.int32) for side in zip(*sizes, strict=True))
    assert most_bytes(widths, heights, transform) == 4 * sum(w * h for w, h in sizes)
    scaled = replace(transform, jpeg_decode="scaled")
    for width, height in sizes:
        most = most_bytes(np.array([width]), np.array([height]), scaled)
        data = encoded(smooth(width, height), "JPEG")
        for visit in range(6):
            made = TrainView(scaled, 0, "key", visit)
            image = decode_reduced(data, made.reduction)
            rounded_up = (
                (image.pixels.width + 1)
                * (image.pixels.height + 1)
                / (image.pixels.width * image.pixels.height)
            )
            assert image.n_bytes <= most * rounded_up
