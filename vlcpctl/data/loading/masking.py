"""Masked language modelling (BERT, Devlin et al., 2019): which tokens are masked or replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vlcpctl.core.batch import SpecialTokens
from vlcpctl.core.seeds import generator

UNMASKED = -100  # label of the tokens not to predict: torch's default ignore_index

# Of the chosen tokens 80 % become [MASK]; of the rest, half are replaced by a random word.
HIDDEN, SWAPPED = 0.8, 0.5


@dataclass(frozen=True)
class MaskDraws:
    """The random draws for the L tokens of a text; all arrays are (L,)."""

    chosen: np.ndarray  # bool: chosen for prediction, unless it is a special token
    hidden: np.ndarray  # bool: replaced by [MASK], if chosen
    swapped: np.ndarray  # bool: replaced by a random word, if chosen and not hidden
    words: np.ndarray  # int: that random word's id


@dataclass(frozen=True)
class Masking:
    """Masks a `share` of the tokens; the draws of a text depend only on (seed, key, visit).

    Of the chosen tokens 80 % become [MASK], 10 % a random word, and 10 % are unchanged, as in BERT;
    with `hides_all` all of them become [MASK].
    """

    special: SpecialTokens
    share: float
    seed: int
    hides_all: bool = False

    def __call__(
        self, texts: Tensor, keys: Sequence[str], visits: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """The masked token ids (b, L), and the labels (b, L): the true id where chosen, else -100.

        `texts` are (b, L) token ids; `keys` and `visits` have length b.
        """
        ids = texts.numpy()
        pairs = [
            mask(row, self.special, self._draws(len(row), key, visit))
            for row, key, visit in zip(ids, keys, visits, strict=True)
        ]
        masked, labels = (np.stack(side) for side in zip(*pairs, strict=True))
        return torch.from_numpy(masked), torch.from_numpy(labels)

    def _draws(self, length: int, key: str, visit: int) -> MaskDraws:
        draw = generator(self.seed, "mask", key, visit)
        chosen, hidden, swapped = draw.random((3, length))
        return MaskDraws(
            chosen=chosen < self.share,
            hidden=hidden < (1.0 if self.hides_all else HIDDEN),
            swapped=swapped < SWAPPED,
            words=draw.integers(0, self.special.words, length),
        )


def mask(
    ids: np.ndarray, special: SpecialTokens, draws: MaskDraws
) -> tuple[np.ndarray, np.ndarray]:
    """The masked ids (L,) of a text's ids (L,), and the labels (L,): -100 where not chosen.

    [CLS] and padding are never masked, but [SEP] may be, as in the code of CTP's authors, which
    follows ALBEF's.
    """
    chosen = draws.chosen & (ids != special.pad) & (ids != special.cls)
    hidden = chosen & draws.hidden
    swapped = chosen & draws.swapped & ~hidden
    masked = np.where(hidden, special.mask, np.where(swapped, draws.words, ids))
    return masked.astype(ids.dtype), np.where(chosen, ids, UNMASKED).astype(ids.dtype)
