"""`--resize torch`: nearly Pillow's pixels, and the same on every CPU."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.transforms import Decoded, TrainView, resized_by_torch

MOST = 8  # levels of 255 between the two: with bicubic at sharp edges, slightly reduced
SIZES = ((490, 311), (224, 224), (225, 223), (64, 200), (30, 17), (7, 5), (1, 1))
TARGETS = ((224, 224), (32, 32), (17, 9))


def pixels_of(width: int, height: int) -> np.ndarray:
    """Smooth waves with noise, which is harder to resize than photographs."""
    rng = np.random.default_rng(width * 1000 + height)
    y, x = np.mgrid[:height, :width]
    waves = 120 + 60 * np.sin(x / 9 + y / 31)[..., None] + 20 * rng.normal(size=(height, width, 3))
    return np.clip(waves, 0, 255).astype(np.uint8)


def resized(pixels: np.ndarray, *how: object) -> np.ndarray:
    return np.asarray(resized_by_torch(Image.fromarray(pixels), *how))  # type: ignore[arg-type]


def digest() -> str:
    """Of every size, target and filter, whole and cut."""
    made = hashlib.sha256()
    for size in SIZES:
        for target in TARGETS:
            for filter_ in ("bicubic", "bilinear"):
                whole = (0.0, 0.0, *map(float, size))
                part = (size[0] * 0.1, size[1] * 0.2, size[0] * 0.8, size[1] * 0.9)
                for box in (whole, part):
                    pixels = resized(pixels_of(*size), target, filter_, box)
                    assert pixels.shape == (target[1], target[0], 3)
                    made.update(np.ascontiguousarray(pixels))
    return made.hexdigest()


@pytest.mark.parametrize("filter_", ["bicubic", "bilinear"])
def test_pixels_are_nearly_pillows(filter_: str) -> None:
    resample = Image.Resampling[filter_.upper()]
    for size in SIZES[:5]:
        for target in TARGETS:
            pixels = pixels_of(*size)
            theirs = Image.fromarray(pixels).resize(target, resample, box=(0, 0, *size))
            ours = resized(pixels, target, filter_, (0, 0, *size))
            assert np.abs(ours.astype(int) - np.asarray(theirs)).max() <= MOST, (size, target)


def test_an_image_in_several_blocks_of_memory_has_the_same_pixels() -> None:
    pixels, how = pixels_of(490, 311), ((64, 48), "bicubic", (9, 5, 480, 300))
    at_once = resized(pixels, *how)
    before = Image.core.get_block_size()
    Image.core.set_block_size(2**16)
    try:
        in_blocks = Image.fromarray(pixels)
        with pytest.raises(ValueError, match=r"memory|block"):
            in_blocks.__arrow_c_array__()
        assert np.array_equal(resized_by_torch(in_blocks, *how), at_once)
    finally:
        Image.core.set_block_size(before)


@pytest.mark.parametrize("capability", ["default", pytest.param("avx2", marks=pytest.mark.slow)])
def test_vector_instructions_and_threads_do_not_change_a_bit(capability: str) -> None:
    program = "import test_resizing as one, torch; torch.set_num_threads(2); print(one.digest())"
    more = {"ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(
        command, env={**os.environ, **more}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == digest()


def test_a_view_of_torch_is_that_of_pillow_but_for_rounding() -> None:
    image = Decoded(Image.fromarray(pixels_of(300, 200)), (300, 200))
    transform = ImageTransform(
        image_size=64, mean=(0.5,) * 3, std=(0.5,) * 3, crop="random", flip=True
    )
    for visit in range(20):
        theirs = TrainView(transform, 0, "key", visit).render(image)
        ours = TrainView(replace(transform, resize="torch"), 0, "key", visit).render(image)
        difference = np.abs(ours.astype(int) - theirs)
        assert 0 < difference.max() <= MOST
        assert difference.mean() < 0.1


def test_a_reduced_image_is_cut_at_whole_pixels() -> None:
    reduced = Decoded(Image.fromarray(pixels_of(100, 67)), (400, 266), reduction=4, asked=4)
    found = reduced.resize((32, 32), "bilinear", (13, 6, 211, 205), by="torch")
    part = Image.fromarray(np.asarray(reduced.pixels)[2:51, 3:53])  # 1.5 to 51.25, 3.25 to 52.75
    whole = Decoded(part, part.size).resize((32, 32), "bilinear", by="torch")
    assert np.array_equal(np.asarray(found), np.asarray(whole))


def test_facts_without_it_are_those_of_older_runs() -> None:
    transform = ImageTransform(image_size=64, mean=(0.5,) * 3, std=(0.5,) * 3)
    assert "resize" not in transform.facts()
    assert replace(transform, resize="torch").facts()["resize"] == "torch"
