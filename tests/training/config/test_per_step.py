"""Shares per step scaled to the number of steps, and what the plan says of such values."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.training import with_settings

from vlcpctl.files.manifest import read_manifest
from vlcpctl.methods import TABLE
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.methods import (
    compose,
    scaled,
)
from vlcpctl.training.plan import lines, make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

WEIGHTS = "open_clip_model.safetensors"
STEPS = 6  # of a task of the world


def test_as_much_is_kept_over_a_task() -> None:
    def in_80_steps(share: float) -> float:
        (method,) = scaled(compose("ema", [f"ema.decay={share}"]), "6090", 80, first=False)
        return float(vars(method)["decay"])

    # 0.995 over the paper's 6090 steps, in 80 steps: 0.995^(6090 / 80) = 0.995^76.125
    weight = in_80_steps(0.995)
    assert weight == pytest.approx(0.6827819345, abs=1e-10)
    assert weight**80 == pytest.approx(0.995**6090, rel=1e-12)
    assert [in_80_steps(edge) for edge in (0.0, 1.0)] == [0.0, 1.0]


def test_dha_scales_both_shares_and_nothing_else() -> None:
    (method,) = scaled(compose("dha"), "paper", 80, first=False)
    expected = {"main_share": 0.995**76.125, "history_share": 0.985**76.125}
    for name, value in vars(compose("dha")[0]).items():
        assert getattr(method, name) == pytest.approx(expected.get(name, value), rel=1e-12), name


def test_ctp_scales_the_momentum_of_later_tasks_alone() -> None:
    (method,) = scaled(compose("ctp"), "paper", 110, first=False)
    values = vars(method)
    assert (values["m"], values["m_first"]) == (pytest.approx(0.9**10), 0.995)
    assert scaled(compose("ctp"), "paper", 110, first=True) == compose("ctp")


def test_a_number_of_steps_holds_for_every_method() -> None:
    dha, ema = scaled(compose("dha+ema", ["ema.decay=0.9"]), "20", 10, first=False)
    values = vars(dha) | vars(ema)
    assert (values["main_share"], values["decay"]) == pytest.approx((0.995**2, 0.81))


@pytest.mark.parametrize("name", TABLE)
def test_shares_per_step_are_weights_that_say_so(name: str) -> None:
    method = TABLE[name]()
    known = {field.name: field for field in fields(method)}
    for share in method.per_step(first=False):
        assert known[share].metadata["within"] == "[0, 1]"
        assert known[share].metadata["depends"].startswith("the number of steps: ")
        assert "--scale-per-step" in known[share].metadata["depends"]


# Training


def _scaled(step: TrainRequest, text: str) -> TrainRequest:
    return with_settings(step, scale_per_step=text)


def _same(one: Path, other: Path) -> bool:
    first, second = load_file(one / WEIGHTS), load_file(other / WEIGHTS)
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_is_that_of_the_scaled_share_and_records_what_was_asked(
    world: TrainingWorld, tmp_path: Path
) -> None:
    step = request(world, "ema", 0, tmp_path, buffered=False)
    given = compose("ema", ["ema.decay=0.9"])
    plain = replace(step, methods=given, out=tmp_path / "plain")
    asked = _scaled(replace(plain, out=tmp_path / "scaled"), str(2 * STEPS))
    by_hand = replace(plain, methods=compose("ema", ["ema.decay=0.81"]), out=tmp_path / "hand")
    for one in (plain, asked, by_hand):
        train_step(one)
    assert _same(asked.out, by_hand.out)
    assert not _same(asked.out, plain.out)
    identity = read_manifest(asked.out, "checkpoint")["identity"]
    assert identity["hyper"]["ema"]["decay"] == 0.9
    assert identity["settings"]["scale_per_step"] == str(2 * STEPS)


def test_a_plan_scales_by_its_own_steps(world: TrainingWorld, tmp_path: Path) -> None:
    plan = make_plan(_scaled(request(world, "ema", 0, tmp_path, buffered=False), "600"))
    assert plan.trained == STEPS
    assert f"  ema.decay 0.999 at 600 steps -> 0.904792 at {STEPS} steps" in list(lines(plan))
    assert make_plan(plan.request).methods == plan.methods
    # Penalties measure importances after training: these steps do not count.
    both = make_plan(_scaled(request(world, "ema+ewc", 0, tmp_path, buffered=False), "600"))
    assert sum(phase.steps for phase in both.phases) > STEPS
    assert both.methods[0] == plan.methods[0]
