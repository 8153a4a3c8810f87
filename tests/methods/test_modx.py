"""Mod-X against a row-by-row version written from the paper."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_run import FakeRun, fake_batch, features

from vlcpctl.losses.alignment import off_diagonal
from vlcpctl.methods.modx import Modx

BATCH = fake_batch(7)


def _features(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    return image, image + torch.randn(7, 5, generator=generator, dtype=torch.float64)


def _row_by_row(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Eqs. 3-4, one direction: a row that the old model ranks wrongly is replaced by the new."""
    total = torch.zeros((), dtype=new.dtype)
    for row in range(len(new)):
        target = old[row] if int(old[row].argmax()) == row else new[row].detach()
        kept, now = torch.softmax(target, 0), torch.softmax(new[row], 0)
        total = total - (kept * torch.log(now / kept)).sum()
    return total


def test_alignment_is_the_row_by_row_one_with_its_gradient() -> None:
    old, (image, text) = features(*_features(0)), _features(1)
    image.requires_grad_(), text.requires_grad_()
    out = features(image, text)
    terms, _ = Modx().loss(FakeRun(old=old), BATCH, out)
    new_BB, old_BB = out.image @ out.text.T, old.image @ old.text.T
    naive = 20 * (_row_by_row(new_BB, old_BB) + _row_by_row(new_BB.T, old_BB.T)) / 2
    torch.testing.assert_close(terms["alignment"], naive, rtol=1e-9, atol=1e-12)
    ours = torch.autograd.grad(terms["alignment"], (image, text), retain_graph=True)
    theirs = torch.autograd.grad(naive, (image, text))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_nothing_is_lost_where_the_models_agree() -> None:
    image, text = _features(0)
    image.requires_grad_()
    out = features(image, text)
    terms, _ = Modx().loss(FakeRun(old=features(*_features(0))), BATCH, out)
    assert terms["alignment"].item() == 0
    assert torch.autograd.grad(terms["alignment"], image)[0].abs().max() < 1e-12


def test_one_direction_is_the_printed_equations() -> None:
    out, old = features(*_features(1)), features(*_features(0))
    terms, _ = Modx(directions="i2t", alpha=1.0).loss(FakeRun(old=old), BATCH, out)
    naive = _row_by_row(out.image @ out.text.T, old.image @ old.text.T)
    torch.testing.assert_close(terms["alignment"], naive)


def test_mean_divides_by_the_batch() -> None:
    out, run = features(*_features(1)), FakeRun(old=features(*_features(0)))
    total = Modx(reduction="sum").loss(run, BATCH, out)[0]["alignment"]
    mean = Modx(reduction="mean").loss(run, BATCH, out)[0]["alignment"]
    torch.testing.assert_close(mean * 7, total)


@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([1.0, 0.07, 3.0]))
@settings(max_examples=25, deadline=None)
def test_any_batch_at_any_temperature_is_the_row_by_row_one(
    seed: int, size: int, heat: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    old, new = torch.randn(2, size, size, generator=generator, dtype=torch.float64)
    found = off_diagonal(new, old, temperature=heat)
    naive = _row_by_row(new / heat, old / heat)
    torch.testing.assert_close(found, naive, rtol=1e-9, atol=1e-9)


def test_the_temperature_divides_both_models_cosines() -> None:
    out, old = features(*_features(1)), features(*_features(0))
    terms, _ = Modx(alpha=1.0, temperature=0.1).loss(FakeRun(old=old), BATCH, out)
    new_BB, old_BB = out.image @ out.text.T / 0.1, old.image @ old.text.T / 0.1
    naive = (_row_by_row(new_BB, old_BB) + _row_by_row(new_BB.T, old_BB.T)) / 2
    torch.testing.assert_close(terms["alignment"], naive)


def test_each_direction_has_wrong_rows_of_its_own() -> None:
    # The second image is nearest to both texts: the column of text 0 is wrong, no row is.
    old = features(
        torch.tensor([[1.0, 0.2], [0.0, 1.0]]).double(), torch.tensor([[1, 3], [0, 1]]).double()
    )
    out = features(*(side[:2, :2] for side in _features(1)))
    new_BB, old_BB = out.image @ out.text.T, old.image @ old.text.T
    rows = old_BB.argmax(1) == torch.arange(2)
    columns = old_BB.argmax(0) == torch.arange(2)
    assert rows.tolist() != columns.tolist()
    terms, _ = Modx().loss(FakeRun(old=old), fake_batch(2), out)
    naive = 10 * (_row_by_row(new_BB, old_BB) + _row_by_row(new_BB.T, old_BB.T))
    torch.testing.assert_close(terms["alignment"], naive)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_parts_of_all_processes_add_up(reduction: str) -> None:
    out, old = features(*_features(1)), features(*_features(0))
    new_BB, old_BB = out.image @ out.text.T, old.image @ old.text.T
    parts = [
        off_diagonal(new_BB[own], old_BB[own], reduction=reduction, own=own)
        for own in (slice(0, 3), slice(3, 7))
    ]
    torch.testing.assert_close(sum(parts), off_diagonal(new_BB, old_BB, reduction=reduction))
