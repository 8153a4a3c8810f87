"""Views of a glyph: rotated, scaled, shifted, placed on a background, with colour jitter.

Shapes: V views, S pixels a side, C = 3 colours. Every operation on pixels is elementwise, so that
the images do not depend on a BLAS or on the number of threads.
"""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image

DRAWS = 18  # uniform random numbers that determine one view
_TURN = (-25.0, 25.0)  # degrees
_SCALE = (0.72, 1.02)
_SHIFT = (-0.08, 0.08)  # of the side
_BRIGHTNESS = (0.8, 1.2)
_CONTRAST = (0.8, 1.2)
_SATURATION = (0.7, 1.3)
_CHANNEL = (0.92, 1.08)
_BACKGROUND = (64.0, 255.0)  # not black: some glyphs are black pictograms
_GREY = (0.299, 0.587, 0.114)


def render_views(glyph: Image.Image, draws: np.ndarray, size: int) -> np.ndarray:
    """(V, S, S, C) uint8: one view of the RGBA glyph per row of (V, DRAWS) numbers in [0, 1)."""
    # Premultiplied alpha: colours of transparent pixels do not bleed into the edges.
    small = glyph.resize((size, size), Image.Resampling.LANCZOS).convert("RGBa")
    layers = np.stack([_placed(small, draw, size) for draw in draws]).transpose(0, 3, 1, 2)
    layers = np.ascontiguousarray(layers, np.float32)  # channels first: three times as fast
    clear = 1 - layers[:, 3:] / np.float32(255)
    images = layers[:, :3] + clear * _backgrounds(draws[:, 10:18], size)
    jittered = _jittered(images, draws[:, 4:10]) + np.float32(0.5)
    return np.clip(jittered, 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)


def encode(image: np.ndarray) -> bytes:
    """The (S, S, C) uint8 view as PNG bytes: lossless, and the fastest to decode at this size."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _placed(small: Image.Image, draw: np.ndarray, size: int) -> np.ndarray:
    """(S, S, 4) uint8: the glyph rotated, scaled and shifted; transparent around it."""
    turn, scale = math.radians(_between(_TURN, draw[0])), _between(_SCALE, draw[1])
    cos, sin, centre = math.cos(turn) / scale, math.sin(turn) / scale, size / 2
    x = centre + size * _between(_SHIFT, draw[2])
    y = centre + size * _between(_SHIFT, draw[3])
    output_to_input = (cos, sin, centre - cos * x - sin * y, -sin, cos, centre + sin * x - cos * y)
    placed = small.transform(
        small.size, Image.Transform.AFFINE, output_to_input, Image.Resampling.BICUBIC
    )
    return np.frombuffer(placed.tobytes(), np.uint8).reshape(size, size, 4)


def _backgrounds(draws: np.ndarray, size: int) -> np.ndarray:
    """(V, C, S, S): a plain colour in about half of the views, a ramp between two in the others."""
    colours = _between(_BACKGROUND, draws[:, :6]).astype(np.float32).reshape(-1, 2, 3, 1, 1)
    angle = (draws[:, 7] * 2 * math.pi)[:, None, None]
    along = (np.arange(size) + 0.5) / size - 0.5
    ramp = (np.cos(angle) * along + np.sin(angle) * along[:, None]) / math.sqrt(2) + 0.5
    is_plain = draws[:, 6, None, None] < 0.5
    mix = np.where(is_plain, 0, ramp).astype(np.float32)[:, None]
    return colours[:, 0] + mix * (colours[:, 1] - colours[:, 0])


def _jittered(images: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Jitter brightness, saturation, contrast around middle grey, then the gain of each channel."""
    values = draws.astype(np.float32)[:, :, None, None]
    brightness = _between(_BRIGHTNESS, values[:, 0:1])
    contrast = _between(_CONTRAST, values[:, 1:2])
    saturation = _between(_SATURATION, values[:, 2:3])
    gain = _between(_CHANNEL, values[:, 3:6])
    grey = sum(
        images[:, place : place + 1] * np.float32(share) for place, share in enumerate(_GREY)
    )
    coloured = grey + saturation * (images - grey)
    return gain * (contrast * (brightness * coloured - 128) + 128)


def _between(limits: tuple[float, float], share: np.ndarray) -> np.ndarray:
    return limits[0] + (limits[1] - limits[0]) * share
