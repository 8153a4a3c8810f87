"""Co2L against loops over anchors and rows written from the paper."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from support.fake_run import FakeRun, fake_batch, features
from torch import Tensor

from vlcpctl.core.batch import Features
from vlcpctl.losses.rows import SOFTMAX, similarities
from vlcpctl.methods.co2l import Co2l

REPLAYED = torch.tensor([False, True, False, False, True, False])
BATCH = dataclasses.replace(fake_batch(6), replayed=REPLAYED)


def drawn(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    return image, image + torch.randn(6, 5, generator=generator, dtype=torch.float64)


def anchor_by_anchor(out: Features, count: int) -> Tensor:
    """Each new image among all texts, each new text among all images."""
    total = torch.zeros((), dtype=torch.float64)
    for own, others in ((out.image, out.text), (out.text, out.image)):
        for row in (row for row in range(6) if not REPLAYED[row]):
            logits = [out.scale * own[row] @ other for other in others]
            total = total - logits[row] + torch.stack(logits).exp().sum().log()
    return total / 2 / count


def relations_row_by_row(out: Features, old: Features) -> Tensor:
    """Cross-entropy of each of the 12 samples' relations to the 11 others, less the entropy."""
    new, then = torch.cat([out.image, out.text]), torch.cat([old.image, old.text])
    total = torch.zeros((), dtype=torch.float64)
    for row in range(12):
        others = [other for other in range(12) if other != row]
        target = torch.softmax(torch.stack([then[row] @ then[o] / 0.01 for o in others]), 0)
        guess = torch.softmax(torch.stack([new[row] @ new[o] / 0.2 for o in others]), 0)
        total = total + (target * (torch.log(target) - torch.log(guess))).sum() / 12
    return total


@pytest.mark.parametrize(("average", "count"), [("batch", 6), ("anchors", 4)])
def test_only_new_pairs_are_anchors_and_all_are_candidates(average: str, count: int) -> None:
    raw = [side.requires_grad_() for side in drawn(1)]
    out = features(*raw)
    terms, _ = Co2l(average=average, strength=0.0).loss(FakeRun(), BATCH, out)
    naive = anchor_by_anchor(out, count)
    torch.testing.assert_close(terms["contrastive"], naive, rtol=1e-9, atol=1e-12)
    ours = torch.autograd.grad(terms["contrastive"], raw, retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(naive, raw), rtol=1e-9, atol=1e-12)
    assert ours[0][REPLAYED].abs().max() > 0


def test_relations_are_the_row_by_row_ones_with_their_gradient() -> None:
    raw = [side.requires_grad_() for side in drawn(1)]
    out, old = features(*raw), features(*drawn(0))
    terms, _ = Co2l(strength=2.0).loss(FakeRun(old=old), BATCH, out)
    naive = 2 * relations_row_by_row(out, old)
    torch.testing.assert_close(terms["relations"], naive, rtol=1e-9, atol=1e-12)
    ours = torch.autograd.grad(terms["relations"], raw, retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(naive, raw), rtol=1e-9, atol=1e-12)


def test_relations_across_modalities_leave_out_those_within() -> None:
    out, old = features(*drawn(1)), features(*drawn(0))
    method = Co2l(relations="cross", now=0.5, then=0.5)
    terms, _ = method.loss(FakeRun(old=old), BATCH, out)
    total = 0.0
    for new_side, other, old_side, old_other in (
        (out.image, out.text, old.image, old.text),
        (out.text, out.image, old.text, old.image),
    ):
        for row in range(6):
            target = torch.softmax(old_side[row] @ old_other.T / 0.5, 0)
            guess = torch.softmax(new_side[row] @ other.T / 0.5, 0)
            total += (target * (target / guess).log()).sum().item() / 12
    assert terms["relations"].item() == pytest.approx(total)


def test_a_batch_of_replayed_pairs_alone_contrasts_nothing() -> None:
    everything = dataclasses.replace(BATCH, replayed=torch.ones(6, dtype=torch.bool))
    for average in ("batch", "anchors"):
        terms, _ = Co2l(average=average, strength=0.0).loss(
            FakeRun(), everything, features(*drawn(1))
        )
        assert terms["contrastive"].item() == 0


def test_two_anchors_of_equal_candidates_cost_log_b() -> None:
    same = torch.ones(4, 3)
    anchors = torch.tensor([True, False, True, False])
    sides = [SOFTMAX(side, 4, anchors_B=anchors) for side in similarities(same, same, 7.0)]
    assert [side.item() for side in sides] == pytest.approx([math.log(4) / 2] * 2)
