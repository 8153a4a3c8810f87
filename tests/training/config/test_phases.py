"""The order of phases, and what each one's steps are."""

from __future__ import annotations

from vlcpctl.training.methods import compose
from vlcpctl.training.phases import plan_phases


def test_phases_before_an_epoch_read_its_batches_and_end_nothing() -> None:
    plans = plan_phases(compose("afec"), first=False, epoch_steps=4, epochs=9, steps=6)
    before = ["afec/forward", "afec/forward-fisher", "train"]
    assert [plan.name for plan in plans[:6]] == 2 * before
    assert [(plan.start, plan.steps) for plan in plans[:6]] == 3 * [(0, 4)] + 3 * [(4, 2)]
    assert [plan.last for plan in plans[:6]] == 5 * [False] + [True]
    # A measuring phase counts from 0 in each epoch.
    assert [plan.offset for plan in plans[:6]] == [0, 0, 0, 4, 0, 4]
