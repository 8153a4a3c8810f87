"""Views: open_clip in evaluation, fixed by (seed, key, visit) in training, whole or reduced."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support.hostile import check_memory

from vlcpctl.core.errors import BadInput
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.randaugment import OPERATIONS
from vlcpctl.data.images.transforms import (
    TrainView,
    decode_image,
    decode_reduced,
    eval_view,
    most_bytes,
    reduction_of,
    train_view,
)

VARIED = {"crop": "random", "flip": True, "randaugment": (2, 5)}


def view(size: int = 32, **how: object) -> ImageTransform:
    return ImageTransform(image_size=size, mean=(0.5,) * 3, std=(0.5,) * 3, **how)  # type: ignore[arg-type]


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str = "PNG", **how: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


# Evaluation


@pytest.mark.parametrize(
    "size", [(32, 32), (64, 64), (50, 33), (33, 50), (31, 77), (7, 9), (400, 33)]
)
@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_evaluation_equals_open_clip_byte_for_byte(
    size: tuple[int, int], mode: str, interpolation: str
) -> None:
    from vlcpctl.models.imports import open_clip

    transform = open_clip().image_transform(
        32, is_train=False, resize_mode=mode, interpolation=interpolation, fill_color=7
    )
    image = picture(*size)
    theirs = image
    for step in transform.transforms[:-2]:  # without ToTensor and Normalize
        theirs = step(theirs)
    ours = eval_view(image, view(resize_mode=mode, interpolation=interpolation, fill_color=7))
    np.testing.assert_array_equal(ours, np.asarray(theirs))


@pytest.mark.parametrize("size", [(1, 12_000), (12_000, 1), (3, 9000), (20_000, 40)])
@pytest.mark.parametrize("how", [{}, {"resize": "torch"}, {"jpeg_decode": "scaled"}])
def test_of_a_very_long_image_the_part_in_the_crop_alone_is_enlarged(
    size: tuple[int, int], how: dict[str, str]
) -> None:
    ramp = np.linspace(0, 255, size[0] * size[1]).astype(np.uint8).reshape(size[::-1])
    transform = view(224, crop="random", **how)

    def make() -> None:
        data = encoded(Image.fromarray(ramp), "JPEG", quality=95)
        drawn = TrainView(transform, 0, "k", 0)
        views = (
            drawn.render(decode_reduced(data, drawn.reduction)),
            eval_view(decode_image(data), transform),
        )
        for one in views[min(size) < 40 :]:  # of the last size, a random crop fits
            assert one.shape == (224, 224, 3)
            assert abs(int(one.mean()) - 127) <= 3

    make()  # imports torch
    check_memory(make, 60)


# Training


def test_a_view_depends_on_seed_key_and_visit_alone() -> None:
    image = picture(50, 40)
    first = train_view(image, view(**VARIED), 0, "key", 1)
    for visit in range(3):
        train_view(picture(9, 9), view(**VARIED), 0, "other", visit)
    np.testing.assert_array_equal(train_view(image, view(**VARIED), 0, "key", 1), first)
    for other in ((1, "key", 1), (0, "yek", 1), (0, "key", 2)):
        assert not np.array_equal(train_view(image, view(**VARIED), *other), first)


@pytest.mark.parametrize("crop", ["none", "center", "random"])
@pytest.mark.parametrize("size", [(32, 32), (50, 33), (5, 400)])
def test_every_view_has_the_models_size(crop: str, size: tuple[int, int]) -> None:
    made = train_view(picture(*size), view(crop=crop, flip=True, randaugment=(2, 9)), 0, "k", 0)
    assert made.shape == (32, 32, 3)
    assert made.dtype == np.uint8


def test_without_a_crop_the_whole_image_is_seen() -> None:
    image = Image.new("RGB", (64, 32))
    image.paste((255, 255, 255), (0, 0, 4, 32))
    assert train_view(image, view(crop="none"), 0, "k", 0)[:, 0].mean() > 200
    flipped = [train_view(image, view(crop="none", flip=True), 0, "k", i) for i in range(8)]
    assert all(max(one[:, 0].mean(), one[:, -1].mean()) > 200 for one in flipped)


@pytest.mark.parametrize("size", [(64, 32), (33, 50), (32, 32)])
def test_a_center_crop_is_the_view_of_evaluation_at_every_visit(size: tuple[int, int]) -> None:
    image, transform = picture(*size), view(crop="center")
    assert not transform.varies
    for visit in range(3):
        made = train_view(image, transform, visit, f"k{visit}", visit)
        np.testing.assert_array_equal(made, eval_view(image, transform))


def test_half_of_the_views_are_flipped() -> None:
    image = Image.new("RGB", (32, 32))
    image.paste((255, 255, 255), (0, 0, 16, 32))
    made = [train_view(image, view(flip=True), 0, "k", visit)[0, 0, 0] for visit in range(400)]
    assert 150 < sum(value == 0 for value in made) < 250


def test_a_crop_keeps_an_area_within_its_limits() -> None:
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (256, 256, 3))
    image = Image.fromarray(np.ascontiguousarray(ramp))
    for visit in range(50):
        made = train_view(image, view(crop="random", crop_scale=(0.9, 1.0)), 0, "k", visit)
        spread = int(made[0, -1, 0]) - int(made[0, 0, 0])
        assert spread > 256 * 0.9 * 0.75  # width >= sqrt(0.9 * 3 / 4) of the side, less the edges


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_every_operation_keeps_size_and_mode(number: int) -> None:
    for strength in (-1.0, 0.0, 0.5, 1.0):
        made = OPERATIONS[number](picture(20, 30), strength)
        assert made.size == (20, 30)
        assert made.mode == "RGB"


# Decoding


def test_transparent_parts_become_white() -> None:
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    pixels = np.asarray(decode_image(encoded(image)))
    assert pixels.tolist() == [[[255, 255, 255], [10, 20, 30]]]
    palette = image.quantize(2)
    pixels = np.asarray(decode_image(encoded(palette)))
    assert pixels[0, 0].tolist() == [255, 255, 255]


def test_sixteen_bits_a_channel_keep_their_upper_eight() -> None:
    ramp = np.array([[0, 256, 0x80FF, 0xFFFF]], dtype=np.uint16)
    pixels = np.asarray(decode_image(encoded(Image.fromarray(ramp))))
    assert pixels[0, :, 0].tolist() == [0, 1, 128, 255]


# JPEGs decoded at a reduced scale: the same crops with slightly different pixels

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
