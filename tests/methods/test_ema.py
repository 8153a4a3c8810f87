"""The moving average against its sum written out."""

from __future__ import annotations

import torch
from support.fake_run import FakeRun, fake_batch

from vlcpctl.methods.ema import Ema

BATCH = fake_batch(2)


def test_average_is_the_weighted_sum_of_all_weights_passed() -> None:
    generator = torch.Generator().manual_seed(0)
    passed = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    run = FakeRun(weights={"w": passed[0].clone()}).start(Ema(decay=0.9))
    for weights in passed[1:]:
        run.weights["w"].copy_(weights)
        Ema(decay=0.9).after_step(run, BATCH, {}, stepped=True)
    shares = [0.9**7, *(0.1 * 0.9**left for left in range(6, -1, -1))]
    expected = (torch.tensor(shares, dtype=torch.float64)[:, None] * passed).sum(0)
    torch.testing.assert_close(run.slot("average")["w"], expected, rtol=1e-12, atol=1e-12)


def test_skipped_steps_and_other_phases_do_not_move_it() -> None:
    run = FakeRun(weights={"w": torch.zeros(3)}).start(Ema())
    run.weights["w"] += 1
    Ema().after_step(run, BATCH, {}, stepped=False)
    run.phase = "importance"
    Ema().after_step(run, BATCH, {}, stepped=True)
    assert not run.slot("average")["w"].any()
