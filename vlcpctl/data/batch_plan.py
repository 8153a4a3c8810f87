"""The composition of a batch: which rows, captions and views, before any image is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BatchPlan:
    """The B pairs of a batch; all arrays are (B,) integers."""

    source: np.ndarray  # index into the open splits
    row: np.ndarray  # row in that split
    caption: np.ndarray  # which of the row's captions
    visit: np.ndarray  # how often the row was visited before; it seeds the view's augmentation
