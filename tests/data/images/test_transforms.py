"""Views: open_clip in evaluation, fixed by (seed, key, visit) in training; bad images refused."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from support.hostile import check_memory

from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.randaugment import OPERATIONS
from vlcpctl.data.images.transforms import (
    TrainView,
    decode_image,
    decode_reduced,
    eval_view,
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
