"""Limits that several parts of the program share: what exceeds them is damaged or hostile."""

from __future__ import annotations

MOST_TASKS = 10_000  # in a stream, or learned in a run
MOST_CAPTION_BYTES = 1 << 24  # of all captions of one image, in an index
