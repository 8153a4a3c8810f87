"""Masked language modelling: which words of a text are hidden, and what stands in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vlcpctl.core.seeds import generator
from vlcpctl.core.words import SpecialTokens

UNMASKED = -100

HIDDEN, SWAPPED = 0.8, 0.5  # of masked words: 80 % hidden, half of the others another word


@dataclass(frozen=True)
class Draws:
    """What is drawn for each token of a text, (L,) each."""

    chosen: np.ndarray  # whether it is masked at all, unless it stands for no word
    hidden: np.ndarray  # whether [MASK] takes its place
    swapped: np.ndarray  # whether another word does, if not
    words: np.ndarray  # which


@dataclass(frozen=True)
class Masking:
    """Masks `share` of the words; the draws of a text hang on (seed, key, visit) alone.

    Of the masked words 80 % become [MASK], 10 % any word, 10 % stay as they are (BERT); with
    `hides_all` all of them become [MASK].
    """

    special: SpecialTokens
    share: float
    seed: int
    hides_all: bool = False

    def __call__(
        self, texts: Tensor, keys: Sequence[str], visits: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """The masked ids (b, L), and the true ones where masked and -100 elsewhere."""
        ids = texts.numpy()
        pairs = [
            mask(row, self.special, self._draws(len(row), key, visit))
            for row, key, visit in zip(ids, keys, visits, strict=True)
        ]
        masked, labels = (np.stack(side) for side in zip(*pairs, strict=True))
        return torch.from_numpy(masked), torch.from_numpy(labels)

    def _draws(self, length: int, key: str, visit: int) -> Draws:
        draw = generator(self.seed, "mask", key, visit)
        chosen, hidden, swapped = draw.random((3, length))
        return Draws(
            chosen=chosen < self.share,
            hidden=hidden < (1.0 if self.hides_all else HIDDEN),
            swapped=swapped < SWAPPED,
            words=draw.integers(0, self.special.words, length),
        )


def mask(ids: np.ndarray, special: SpecialTokens, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """A text (L,) with words masked, and the labels; [CLS] and padding never are, [SEP] may be.

    As the CTP authors do, after ALBEF.
    """
    chosen = draws.chosen & (ids != special.pad) & (ids != special.cls)
    hidden = chosen & draws.hidden
    swapped = chosen & draws.swapped & ~hidden
    masked = np.where(hidden, special.mask, np.where(swapped, draws.words, ids))
    return masked.astype(ids.dtype), np.where(chosen, ids, UNMASKED).astype(ids.dtype)
