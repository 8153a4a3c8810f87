"""Step x task matrices of runs, and each as a small picture with one pixel for a cell.

A PNG of 50 x 50 cells is one kilobyte; Vega-Lite draws each cell as a path of a hundred bytes, so
a hundred such matrices would be 25 MB. The numbers themselves are in shaded HTML tables, which
sort, wrap and copy, as no picture does.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.style import RunStyle

SHADES = 10  # of the heat tables, too: .h0 to .h10 in style.css
_INK = (11, 92, 171)  # --heat of the light scheme; style.css brightens pictures in the dark one
_FAINTEST = 0.06  # opacity of a zero, so that its cell is visible


@dataclass(frozen=True)
class HeatMap:
    """One run: its own scores (steps, tasks).

    `steps` and `tasks` number the rows and columns; the model before the first task is step -1.
    """

    run: str
    style: RunStyle
    steps: tuple[int, ...]
    tasks: tuple[int, ...]
    own: NDArray[np.float64]


@dataclass(frozen=True)
class HeatChart:
    """The heat maps of all runs on one scale, which ends at `highest`."""

    name: str
    title: str
    caption: str
    panels: tuple[HeatMap, ...]
    highest: float

    @property
    def names(self) -> list[str]:
        """The names of the runs."""
        return [one.run for one in self.panels]


def shade(value: float, highest: float) -> int:
    """The shade of a score, from 0 to SHADES.

    >>> shade(25, 50), shade(-1, 50), shade(50, 50)
    (5, 0, 10)
    """
    return round(SHADES * min(max(value / highest, 0.0), 1.0))


def picture(matrix: NDArray[np.float64], highest: float) -> str:
    """A (steps, tasks) matrix as the address of a picture, data and all; NaN is transparent."""
    shades = np.round(SHADES * np.clip(matrix / highest, 0, 1))
    pixels = np.where(np.isnan(shades), 0, shades + 1).astype(np.uint8)
    return f"data:image/png;base64,{base64.b64encode(_png(pixels)).decode('ascii')}"


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of a (height, width) picture of palette indices: 0 is transparent, the rest shades."""
    height, width = pixels.shape
    opacities = [
        round(255 * (_FAINTEST + (1 - _FAINTEST) * place / SHADES)) for place in range(SHADES + 1)
    ]
    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels])  # filter 0: bytes as they are
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(_INK) * (SHADES + 2)),
        (b"tRNS", bytes([0, *opacities])),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
