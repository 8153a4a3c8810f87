"""LwF distils similarities by default, and channels as CTP's paper ran it."""

from __future__ import annotations

import torch
from support.fake_run import FakeRun, fake_batch, features

from vlcpctl.losses.topology import cross_modal
from vlcpctl.methods.lwf import Lwf


def drawn(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 5, 6, generator=generator, dtype=torch.float64)


def term(method: Lwf) -> float:
    out, old = features(*drawn(1)), features(*drawn(2))
    return float(method.loss(FakeRun(old=old), fake_batch(5), out)[0]["distill"])


def test_the_default_target_is_ctps_cross_modal_term() -> None:
    new, old = features(*drawn(1)), features(*drawn(2))
    expected = cross_modal((new.image, new.text), (old.image, old.text), new.scale)
    assert term(Lwf()) == float(expected)


def test_channels_are_distilled_of_raw_projections() -> None:
    total = 0.0
    for new, old in zip(drawn(1), drawn(2), strict=True):
        now, then = torch.softmax(new / 0.07, 1), torch.softmax(old / 0.07, 1)
        total += float((then * (then / now).log()).nansum()) / 5 / 2
    assert abs(term(Lwf(target="channels")) - total) < 1e-9 * total
