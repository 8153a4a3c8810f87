"""Resizing by torch's kernel for bytes: several times as fast as Pillow on a CPU with AVX2.

Both average over the pixels that one of the result covers, with the same filters; they round at
other places, so that they differ by at most a few of 255 levels. The result is the same with
and without vector instructions and for any number of threads (tests/data/images/test_resizing.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

_CPUINFO = Path("/proc/cpuinfo")  # of Linux

Box = tuple[float, float, float, float]  # left, upper, right and lower edge in pixels


def resized_by_torch(
    pixels: np.ndarray, target: tuple[int, int], interpolation: str, box: Box
) -> np.ndarray:
    """(height, width, 3) uint8: the part of (H, W, 3) `pixels` in `box`, resized.

    `target` is (width, height). The edges of the box are rounded to whole pixels.
    """
    import torch
    from torch.nn.functional import interpolate

    left, upper = (max(0, round(edge)) for edge in box[:2])
    right, lower = max(left + 1, round(box[2])), max(upper + 1, round(box[3]))
    part = torch.from_numpy(pixels[upper:lower, left:right])
    # Channels last, which the kernel reads and writes as they are. A batch dimension that is added
    # after the permutation has a stride that hides it: the result is planar, and slow to read.
    pixels_last = part[None].permute(0, 3, 1, 2)
    found = interpolate(pixels_last, target[::-1], mode=interpolation, antialias=True)
    return found[0].permute(1, 2, 0).numpy()


def slow_note() -> str | None:
    """A note where torch's kernel has no vector instructions to use; None where it is not known."""
    try:
        words = _CPUINFO.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return None
    if "flags" not in words or "avx2" in words:  # "flags": a processor of Intel's or AMD's kind
        return None
    return "this CPU has no AVX2, so that --resize torch is slower than Pillow"
