"""DHA's path of the weights against Algorithm 1 written out by hand."""

from __future__ import annotations

import pytest
import torch
from support.fake_run import FakeRun

from vlcpctl.methods.dha import Dha


def _by_hand(
    start: torch.Tensor, gradients: torch.Tensor, *, adapt: bool, dynamic: bool
) -> torch.Tensor:
    main = history = start.clone()
    for number, gradient in enumerate(gradients, start=1):
        earlier_main, earlier_history = main, history
        before = 0.995 * earlier_main + 0.005 * earlier_history if adapt else earlier_main  # eq. 7
        if dynamic and number % 5 == 0:
            history = 0.985 * earlier_history + 0.015 * earlier_main  # eq. 10
        main = before - 0.1 * gradient  # eq. 8
    return main


@pytest.mark.parametrize(("adapt", "dynamic"), [(True, True), (True, False), (False, False)])
def test_weights_follow_algorithm_1_over_fifty_steps(*, adapt: bool, dynamic: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    gradients = torch.randn(50, 4, 3, generator=generator, dtype=torch.float64)
    method = Dha(adapt=adapt, dynamic=dynamic)
    weights = {"w": start.clone()}
    run = FakeRun(weights=weights).start(method)
    for step, gradient in enumerate(gradients):
        run.step = step
        method.before_forward(run)
        weights["w"] -= 0.1 * gradient
    torch.testing.assert_close(
        weights["w"],
        _by_hand(start, gradients, adapt=adapt, dynamic=dynamic),
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize("every", [1, 3, 7])
def test_the_historical_model_moves_at_every_kth_step_alone(every: int) -> None:
    method = Dha(every=every, main_share=0.5, history_share=0.5)
    run = FakeRun(weights={"w": torch.zeros(1)}).start(method)
    moved = []
    for step in range(12):
        before = run.slot("history")["w"].clone()
        run.step = step
        run.weights["w"] += 1
        method.before_forward(run)
        if not torch.equal(before, run.slot("history")["w"]):
            moved.append(step + 1)
    assert moved == [number for number in range(1, 13) if number % every == 0]


def test_the_historical_model_lives_inside_a_task() -> None:
    assert [slot.lifetime for slot in Dha().slots(first=False)] == ["task"]
    assert Dha().slots(first=True) == Dha(adapt=False).slots(first=False) == ()
