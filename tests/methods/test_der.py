"""DER and DER++ against sums over pairs written from the paper."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from support.fake_run import FakeRun, fake_batch, features
from torch import Tensor

from vlcpctl.core.batch import Batch, ReplayedProjections
from vlcpctl.methods.der import Der
from vlcpctl.methods.derpp import Derpp

REPLAYED = torch.tensor([False, True, False, True, True, False, False])
ROWS = [1, 3, 4]


def drawn(seed: int, rows: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, rows, 5, generator=generator, dtype=torch.float64)
    return image, text


def batch_with(stored: tuple[Tensor, Tensor], replayed: Tensor = REPLAYED) -> Batch:
    kept = ReplayedProjections(image=stored[0], text=stored[1])
    return dataclasses.replace(fake_batch(len(replayed)), replayed=replayed, stored=kept)


def contrast(raw: tuple[Tensor, Tensor], rows: list[int]) -> Tensor:
    """The contrastive loss among some pairs, one at a time."""
    image, text = (side / side.norm(dim=1, keepdim=True) for side in raw)
    total = torch.zeros((), dtype=torch.float64)
    for own, other in ((image, text), (text, image)):
        for row in rows:
            logits = torch.stack([own[row] @ other[column] / 0.07 for column in rows])
            total = total + (logits.exp().sum().log() - logits[rows.index(row)]) / len(rows) / 2
    return total


def distances(raw: tuple[Tensor, Tensor], stored: tuple[Tensor, Tensor], rows: list[int]) -> Tensor:
    """The squared distance at unit length, averaged over both modalities, a pair at a time."""
    total = torch.zeros((), dtype=torch.float64)
    for new, old in zip(raw, stored, strict=True):
        for place, row in enumerate(rows):
            one, other = new[row] / new[row].norm(), old[place] / old[place].norm()
            total = total + (one - other).pow(2).sum() / len(rows) / 2
    return total


def test_new_pairs_are_contrasted_and_replayed_ones_kept() -> None:
    raw, stored = drawn(0), drawn(1, 3)
    sides = [side.requires_grad_() for side in raw]
    terms, _ = Der(alpha=0.7).loss(FakeRun(), batch_with(stored), features(*raw))
    expected = {
        "contrastive": contrast(raw, [0, 2, 5, 6]),
        "dark": 0.7 * distances(raw, stored, ROWS),
    }
    assert terms.keys() == expected.keys()
    for name, naive in expected.items():
        torch.testing.assert_close(terms[name], naive, rtol=1e-9, atol=1e-12)
        ours = torch.autograd.grad(terms[name], sides, retain_graph=True)
        theirs = torch.autograd.grad(naive, sides, retain_graph=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)


def test_the_second_draw_is_contrasted_by_itself_and_shares_no_pair_with_the_first() -> None:
    raw, stored = drawn(0), drawn(1, 3)
    terms, _ = Derpp(alpha=0.7, beta=0.4).loss(FakeRun(), batch_with(stored), features(*raw))
    halves = (stored[0][:2], stored[1][:2])
    torch.testing.assert_close(terms["dark"], 0.7 * distances(raw, halves, [1, 3]))
    torch.testing.assert_close(terms["replayed"], 0.4 * contrast(raw, [4]))
    torch.testing.assert_close(terms["contrastive"], contrast(raw, [0, 2, 5, 6]))
    more = torch.tensor([False, True, True, True, True, True, False])
    terms, _ = Derpp(beta=0.4).loss(FakeRun(), batch_with(drawn(1, 5), more), features(*raw))
    torch.testing.assert_close(terms["replayed"], 0.4 * contrast(raw, [4, 5]))


def test_raw_projections_are_compared_as_they_are() -> None:
    raw, stored = drawn(0), drawn(1, 3)
    terms, _ = Der(alpha=1.0, target="raw").loss(FakeRun(), batch_with(stored), features(*raw))
    naive = torch.zeros((), dtype=torch.float64)
    for new, old in zip(raw, stored, strict=True):
        naive = naive + (new[ROWS] - old).pow(2).sum() / 6
    torch.testing.assert_close(terms["dark"], naive)


def test_nothing_is_lost_where_pairs_are_where_they_were() -> None:
    raw = drawn(0)
    stored = (raw[0][ROWS] * 3, raw[1][ROWS] / 2)
    assert Der().loss(FakeRun(), batch_with(stored), features(*raw))[0]["dark"].item() < 1e-12


@pytest.mark.parametrize("method", [Der(), Derpp()])
@pytest.mark.parametrize("replays", [True, False])
def test_batches_of_one_kind_alone_are_finite(method: Der | Derpp, *, replays: bool) -> None:
    raw = drawn(0)
    batch = batch_with(drawn(1, 7 if replays else 0), torch.full((7,), replays))
    terms, _ = method.loss(FakeRun(), batch, features(*raw))
    assert all(term.isfinite() for term in terms.values())
    assert ("dark" in terms) is replays
