"""What a batch consists of, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BatchPlan:
    """Which rows, which of their captions, and which visit (for the view); all of shape (B,)."""

    source: np.ndarray  # index into the open splits
    row: np.ndarray
    caption: np.ndarray
    visit: np.ndarray
