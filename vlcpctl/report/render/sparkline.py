"""A histogram as one line of text."""

from __future__ import annotations

import numpy as np

SHADES = " .:-=+*#%@"  # from an empty bin to the fullest


def histogram_line(values: np.ndarray, low: float, high: float, bins: int = 40) -> str:
    """A histogram of values from `low` to `high`, one character per bin, darker where fuller.

    Values outside the range count in the first or the last bin.

    >>> histogram_line(np.array([0.0, 0.1, 0.9, 0.9, 0.9]), 0.0, 1.0, bins=5)
    '*   @'
    """
    counts, _ = np.histogram(np.clip(values, low, high), bins, (low, high))
    darkest = len(SHADES) - 1
    shade = np.ceil(counts * darkest / max(1, counts.max())).astype(int)
    return "".join(SHADES[place] for place in shade)
