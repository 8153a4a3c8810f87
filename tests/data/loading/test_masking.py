"""Masked words: the CTP authors' masks from their draws, shares, and what the draws depend on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from vlcpctl.core.batch import SpecialTokens
from vlcpctl.data.loading.masking import MaskDraws, Masking, mask

AUTHORS = np.load(Path(__file__).parents[2] / "authors" / "data" / "ctp_functional.npz")
SPECIAL = SpecialTokens(pad=0, cls=2, sep=3, mask=4, words=100)


def _authors_draws(seed: int, shape: tuple[int, int]) -> list[MaskDraws]:
    """What the authors draw from torch's generator: four whole matrices, one after another."""
    torch.manual_seed(seed)
    chosen, hidden, swapped = (
        torch.bernoulli(torch.full(shape, share)).bool().numpy() for share in (0.15, 0.8, 0.5)
    )
    words = torch.randint(SPECIAL.words, shape).numpy()
    return [MaskDraws(*row) for row in zip(chosen, hidden, swapped, words, strict=True)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_masks_are_the_authors_from_their_draws(seed: int) -> None:
    ids = AUTHORS["mask/input_ids"]
    for number, draws in enumerate(_authors_draws(seed, ids.shape)):
        masked, labels = mask(ids[number], SPECIAL, draws)
        np.testing.assert_array_equal(masked, AUTHORS[f"mask/seed{seed}_ids"][number])
        np.testing.assert_array_equal(labels, AUTHORS[f"mask/seed{seed}_labels"][number])


def _texts(count: int) -> torch.Tensor:
    return torch.tensor([[2, *range(10, 20), 3, 0, 0]] * count)


def _many(*, hides_all: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    texts = _texts(4000)
    keys = [str(number) for number in range(4000)]
    masking = Masking(SPECIAL, 0.15, seed=0, hides_all=hides_all)
    masked, labels = masking(texts, keys, [0] * 4000)
    return texts.numpy(), masked.numpy(), labels.numpy()


def test_shares_are_those_of_bert_and_special_tokens_but_sep_stay() -> None:
    texts, masked, labels = _many()
    chosen = labels >= 0
    assert not chosen[:, 0].any()
    assert not chosen[:, 12:].any()
    assert chosen[:, 1:12].mean() == pytest.approx(0.15, abs=0.01)
    assert chosen[:, 11].mean() == pytest.approx(0.15, abs=0.02)  # [SEP]
    np.testing.assert_array_equal(labels[chosen], texts[chosen])
    np.testing.assert_array_equal(masked[~chosen], texts[~chosen])
    assert (masked[chosen] == SPECIAL.mask).mean() == pytest.approx(0.8, abs=0.03)
    assert (masked[chosen] == texts[chosen]).mean() == pytest.approx(0.1, abs=0.03)


def test_all_hides_every_masked_word() -> None:
    _, masked, labels = _many(hides_all=True)
    assert (masked[labels >= 0] == SPECIAL.mask).all()


def test_a_text_is_masked_equally_in_any_batch_and_differently_on_each_visit() -> None:
    masking = Masking(SPECIAL, 0.4, seed=0)
    together, _ = masking(_texts(3), ["a", "b", "c"], [0, 0, 0])
    alone, _ = masking(_texts(1), ["b"], [0])
    assert torch.equal(together[1], alone[0])
    again, _ = masking(_texts(1), ["b"], [1])
    other, _ = Masking(SPECIAL, 0.4, seed=1)(_texts(1), ["b"], [0])
    assert not torch.equal(alone, again)
    assert not torch.equal(alone, other)
