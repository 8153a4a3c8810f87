"""RandAugment (Cubuk et al., 2020), its random draws taken from a given generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

MAX_MAGNITUDE = 10

Operation = Callable[[Image.Image, float], Image.Image]


def randaugment(
    image: Image.Image, count: int, magnitude: int, draw: np.random.Generator
) -> Image.Image:
    """Apply `count` random operations in sequence, each with a random sign.

    The strength is `magnitude` / 10, where `magnitude` is 0 to 10.
    """
    for _ in range(count):
        operation = OPERATIONS[int(draw.integers(len(OPERATIONS)))]
        strength = magnitude / MAX_MAGNITUDE * (1 if draw.random() < 0.5 else -1)
        image = operation(image, strength)
    return image


def _affine(x: float = 0, y: float = 0, along_x: float = 0, along_y: float = 0) -> Operation:
    """A shear by `x`, `y`, or a translation by `along_x`, `along_y` as fractions of the side."""

    def operation(image: Image.Image, strength: float) -> Image.Image:
        matrix = (
            1,
            x * strength,
            along_x * strength * image.width,
            y * strength,
            1,
            along_y * strength * image.height,
        )
        return image.transform(image.size, Image.Transform.AFFINE, matrix)

    return operation


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, strength: kind(image).enhance(1 + 0.9 * strength)


OPERATIONS: tuple[Operation, ...] = (
    lambda image, _: image,
    lambda image, _: ImageOps.autocontrast(image),
    lambda image, _: ImageOps.equalize(image),
    lambda image, strength: image.rotate(30 * strength),
    lambda image, strength: ImageOps.solarize(image, round(256 * (1 - abs(strength)))),
    lambda image, strength: ImageOps.posterize(image, max(1, 8 - round(4 * abs(strength)))),
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Sharpness),
    _affine(x=0.3),
    _affine(y=0.3),
    _affine(along_x=0.3),
    _affine(along_y=0.3),
)
