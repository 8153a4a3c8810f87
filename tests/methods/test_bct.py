"""Backward-compatible training against a query-by-query version."""

from __future__ import annotations

from dataclasses import replace

import torch
from support.fake_run import FakeRun, fake_batch, features

from vlcpctl.core.batch import Features
from vlcpctl.losses.contrastive import image_text
from vlcpctl.methods.bct import Bct

BATCH = fake_batch(7)


def _features(seed: int, temperature: float = 0.07) -> Features:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    text = image + torch.randn(7, 5, generator=generator, dtype=torch.float64)
    return features(image.requires_grad_(), text.requires_grad_(), temperature)


def _query_by_query(out: Features, old: Features, groups: list[int] | None = None) -> torch.Tensor:
    """The mean over new queries of -log of the share of their match in the old gallery."""
    total = torch.zeros((), dtype=torch.float64)
    for queries, gallery in ((out.image, old.text), (out.text, old.image)):
        for row, query in enumerate(queries):
            weighed = {
                item: torch.exp((query @ gallery[item]) * old.scale)
                for item in range(len(gallery))
                if groups is None or item == row or groups[item] != groups[row]
            }
            total = total - torch.log(weighed[row] / sum(weighed.values()))
    return total / (2 * len(out.image))


def test_the_term_is_the_query_by_query_one_with_its_gradient() -> None:
    out, old = _features(0), _features(1, temperature=0.2)
    term = Bct(strength=0.5).loss(FakeRun(old=old), BATCH, out)[0]["compatible"]
    naive = 0.5 * _query_by_query(out, old)
    torch.testing.assert_close(term, naive, rtol=1e-9, atol=1e-12)
    sides = (out.raw_image, out.raw_text)
    ours = torch.autograd.grad(term, sides, retain_graph=True)
    theirs = torch.autograd.grad(naive, sides)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_model_that_has_not_moved_has_the_contrastive_loss_of_the_previous_one() -> None:
    old = _features(1)
    term = Bct().loss(FakeRun(old=old), BATCH, old)[0]["compatible"]
    i2t, t2i = image_text(old.image, old.text, old.scale)
    torch.testing.assert_close(term, (i2t + t2i) / 2)


def test_members_of_a_group_are_not_negatives() -> None:
    out, old, groups = _features(0), _features(1), [0, 1, 0, 2, 2, 3, 1]
    batch = replace(BATCH, groups=torch.tensor(groups))
    term = Bct().loss(FakeRun(old=old, distinct=True), batch, out)[0]["compatible"]
    torch.testing.assert_close(term, _query_by_query(out, old, groups))


def test_the_parts_of_all_processes_add_up() -> None:
    out, run = _features(0), FakeRun(old=_features(1))
    parts = [
        Bct().loss(run, BATCH, replace(out, own=own))[0]["compatible"]
        for own in (slice(0, 3), slice(3, 7))
    ]
    torch.testing.assert_close(sum(parts), Bct().loss(run, BATCH, out)[0]["compatible"])


def test_a_bias_has_no_part_in_it() -> None:
    old, bias = _features(1), {"logit_bias": torch.tensor(-10.0)}
    with_bias = Bct().loss(FakeRun(old=old, weights=bias), BATCH, _features(0))[0]
    without = Bct().loss(FakeRun(old=old), BATCH, _features(0))[0]
    assert with_bias["compatible"].item() == without["compatible"].item()
