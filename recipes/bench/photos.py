"""Synthetic photographs with captions, as WebDataset tars; imported by the other scripts.

Their amplitudes fall with frequency as those of photographs do, so JPEGs of them are as large: one
of 512 x 512 pixels has about 75 kB.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

QUALITY = 85
_SLOPE = 1.4  # amplitudes are proportional to 1 / frequency ** slope
_WORDS = (
    *("a", "photo", "of", "red", "green", "small", "large", "old", "new", "wooden", "metal"),
    *("house", "street", "dog", "cat", "car", "table", "tree", "river", "mountain", "city"),
    *("beach", "woman", "man", "child", "bicycle", "bridge", "on", "under", "near", "with"),
)


def photograph(number: int, width: int, height: int) -> Image.Image:
    """RGB noise that looks like a photograph to a codec; different for each number."""
    draw = np.random.default_rng(number)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = np.inf  # no constant part
    planes = []
    for _ in range(3):
        phases = draw.normal(size=(2, *frequency.shape))
        plane = np.fft.irfft2((phases[0] + 1j * phases[1]) / frequency**_SLOPE, s=(height, width))
        planes.append(plane / plane.std())
    light, red, blue = planes
    channels = (light + 0.35 * red, light - 0.2 * red + 0.1 * blue, light + 0.35 * blue)
    pixels = np.clip(128 + 55 * np.stack(channels, axis=-1), 0, 255)
    return Image.fromarray(pixels.astype(np.uint8))


def jpeg(number: int, width: int, height: int) -> bytes:
    """The encoded photograph of this number."""
    file = io.BytesIO()
    photograph(number, width, height).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def caption(number: int) -> str:
    """Twelve words, and the number, so that no two are equal."""
    draw = np.random.default_rng(number)
    return " ".join([*draw.choice(_WORDS, 12), str(number)])


def write_tar(path: Path, pairs: int, pixels: int) -> Path:
    """Write a tar of `pairs` square photographs and their captions; returns its path."""
    with tarfile.open(path, "w") as tar:
        for number in range(pairs):
            for kind, data in (
                ("jpg", jpeg(number, pixels, pixels)),
                ("txt", caption(number).encode()),
            ):
                member = tarfile.TarInfo(f"{number:08d}.{kind}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path
