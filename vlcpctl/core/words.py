"""The special tokens of a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialTokens:
    """Ids that stand for no word, and how many ids there are."""

    pad: int
    cls: int
    sep: int
    mask: int
    words: int
