"""Resizing by torch's kernel for bytes: several times as fast as Pillow on a CPU with AVX2.

Both average over the pixels that one of the result covers, with the same filters; they round at
other places, so that they differ by at most a few of 255 levels. The result is the same with
and without vector instructions and for any number of threads (tests/data/images/test_resizing.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

Box = tuple[float, float, float, float]  # left, upper, right and lower edge in pixels


def resized_by_torch(
    image: Image.Image, target: tuple[int, int], interpolation: str, box: Box
) -> Image.Image:
    """The part of an RGB image in `box`, resized to `target`, (width, height).

    The edges of the box are rounded to whole pixels.
    """
    from torch.nn.functional import interpolate

    left, upper = (max(0, round(edge)) for edge in box[:2])
    right, lower = max(left + 1, round(box[2])), max(upper + 1, round(box[3]))
    part = _pixels(image)[upper:lower, left:right]
    # Channels last, which the kernel reads and writes as they are. A batch dimension that is added
    # after the permutation has a stride that hides it: the result is planar, and slow to read.
    pixels_last = part[None].permute(0, 3, 1, 2)
    found = interpolate(pixels_last, target[::-1], mode=interpolation, antialias=True)
    pixels = found[0].permute(1, 2, 0).numpy()
    mode = "RGBX" if pixels.shape[2] == 4 else "RGB"
    return Image.frombytes("RGB", target, np.ascontiguousarray(pixels), "raw", mode)


def _pixels(image: Image.Image) -> Tensor:
    """(H, W, C) uint8: the pixels of an RGB image, with a channel to spare if C is 4."""
    import pyarrow as pa
    import torch
    from torch.utils.dlpack import from_dlpack

    try:  # as Pillow stores them, without a copy
        flat = pa.array(image).values
    except ValueError:  # in several blocks, as images of more than 16 MB are
        return torch.from_numpy(np.array(image))  # that torch may write to, or it warns
    return from_dlpack(flat).view(image.height, image.width, -1)
