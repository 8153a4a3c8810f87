"""The special tokens of a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the special tokens, and the number of ids in the vocabulary (`words`)."""

    pad: int
    cls: int
    sep: int
    mask: int
    words: int
