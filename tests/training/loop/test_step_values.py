"""Loss terms stay on the device until they are read, as slots do but for their counters."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.marks import mostly_slow
from torch import Tensor

from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.errors import Diverged
from vlcpctl.core.method import Run
from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.ema import Ema
from vlcpctl.methods.ewc import Ewc
from vlcpctl.models import encoders
from vlcpctl.testing.battery import (
    TrainingWorld,
    checkpoint_bytes,
    in_child,
    kill_at,
    request,
)
from vlcpctl.training.method_run import start_slots
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.run import Slots, TrainRun
from vlcpctl.training.settings import Settings
from vlcpctl.training.state import ResumeDirectory
from vlcpctl.training.step import OptimizerStep, StepValues, read_in_order, steps_per_read
from vlcpctl.training.train_step import train_step

LATE = 16
FISHER = PhasePlan("ewc/fisher", steps=9, trains=False)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read values as seldom as on a GPU."""
    monkeypatch.setattr("vlcpctl.training.loop.steps_per_read", lambda device: LATE)


def _step(world: TrainingWorld, root: Path, names: str = "ema", **how: object) -> TrainRequest:
    return request(world, names, 0, root, buffered=False, **how)


def _values(step: int, terms: dict[str, float], tokens: dict[str, float]) -> StepValues:
    named: Terms = {name: torch.tensor(value) for name, value in terms.items()}
    of_tokens: Terms = {name: torch.tensor(value) for name, value in tokens.items()}
    return StepValues.of((FISHER, step), torch.tensor(sum(terms.values())), named, of_tokens)


def test_the_loss_is_the_sum_of_all_terms() -> None:
    (read,) = read_in_order([_values(3, {"contrastive": 1.5, "x/y": 0.25}, {"mlm": 2.0})])
    assert read == {"loss": 3.75, "contrastive": 1.5, "x/y": 0.25, "mlm": 2.0}
    assert list(read) == ["loss", "contrastive", "x/y", "mlm"]


def test_steps_with_different_terms_are_read_together_up_to_the_first_bad_one() -> None:
    steps = [
        _values(0, {"a": 1.0}, {}),
        _values(1, {"a": 2.0, "b": 3.0}, {"c": 4.0}),
        _values(2, {"a": 1.0, "b": float("inf")}, {"c": float("nan")}),
        _values(3, {"a": float("nan")}, {}),
    ]
    rows = read_in_order(steps)
    assert next(rows) == {"loss": 1.0, "a": 1.0}
    assert next(rows)["loss"] == 9.0
    with pytest.raises(Diverged, match=r"^step 2 of phase fisher of ewc: b is inf$"):
        next(rows)
    assert [one.not_finite().item() for one in steps] == [0.0, 0.0, 1.0, 1.0]


def test_a_cpu_reads_every_step_and_a_gpu_several_at_once() -> None:
    assert steps_per_read(torch.device("cpu")) == 1
    assert steps_per_read(torch.device("cuda")) == steps_per_read(torch.device("meta")) == LATE


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("names", mostly_slow(["ema", "ewc"], kept=["ewc"]))  # with two phases
def test_reading_late_gives_the_same_bytes(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    train_step(_step(world, tmp_path / "late", names))
    saved = _step(world, tmp_path / "killed", names, save_every="2")
    for point in ("step=1", "saved", "step=4"):
        assert in_child(saved, kill_at(point)) == -signal.SIGKILL
    train_step(saved)
    monkeypatch.setattr("vlcpctl.training.loop.steps_per_read", lambda device: 1)
    train_step(_step(world, tmp_path / "now", names))
    expected = checkpoint_bytes(tmp_path / "now")
    assert len(expected) >= 2
    assert checkpoint_bytes(tmp_path / "late") == expected
    assert checkpoint_bytes(tmp_path / "killed") == expected


def _steps_in(journal: Path) -> list[int]:
    return [json.loads(line)["step"] for line in journal.read_text().splitlines()]


@pytest.fixture
def weights_after(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """The weights after each step, of a run whose loss is NaN at step 3 and never after."""
    seen: list[dict[str, Tensor]] = []
    stepped = OptimizerStep.__call__

    def look(self: OptimizerStep, batch: Batch) -> StepValues:
        values = stepped(self, batch)
        seen.append({name: one.detach().clone() for name, one in self.run.weights.items()})
        return values

    def loss(self: Ema, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        factor = float("nan") if run.step == 3 else 1.0
        return {"poison": factor * out.image.sum()}, {}

    monkeypatch.setattr(OptimizerStep, "__call__", look)
    monkeypatch.setattr(Ema, "loss", loss)
    return seen


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lamb"])
def test_no_update_follows_a_bad_step_and_the_step_is_named(
    world: TrainingWorld,
    tmp_path: Path,
    weights_after: list[dict[str, Tensor]],
    optimizer: str,
) -> None:
    step = _step(world, tmp_path)
    step = replace(step, settings=replace(step.settings, optimizer=optimizer, weight_decay=0.1))
    with pytest.raises(Diverged, match=r"^the loss diverged at step 3 of training: ema/poison is"):
        train_step(step)
    assert len(weights_after) == 6  # read at the end of the phase
    before, *after = weights_after[2:]
    assert all(one.isfinite().all() for one in before.values())
    for later in after:
        assert all(torch.equal(later[name], one) for name, one in before.items())
    assert not all(torch.equal(weights_after[1][name], one) for name, one in before.items())
    assert _steps_in(tmp_path / ".00.vlcpctl" / "partial" / "metrics.jsonl") == [0, 1, 2]


@pytest.mark.usefixtures("late", "weights_after")
@pytest.mark.parametrize(("every", "newest"), [("2", "state.safetensors"), ("5", "no state had")])
def test_nothing_is_saved_after_a_bad_step(
    world: TrainingWorld, tmp_path: Path, every: str, newest: str
) -> None:
    """The slot of the moving average is poisoned in memory, and the save after it is refused."""
    with pytest.raises(Diverged, match=f"step 3 of training: .*{newest}"):
        train_step(_step(world, tmp_path, save_every=every))
    found = ResumeDirectory(tmp_path / "00").load()
    assert (found and found[0].step) == (2 if every == "2" else None)


DEVICE = torch.device("meta")  # stands for an accelerator


def _run() -> TrainRun:
    encoder = encoders.build("micro")
    encoder.module.to(DEVICE)
    methods = (Ctp(queue=8, keep_queue=True), Ewc())
    return TrainRun(encoder=encoder, methods=methods, settings=Settings(), seed=0, device=DEVICE)


def _devices(slots: Slots) -> dict[str, str]:
    return {
        f"{method}/{slot}": ",".join(sorted({one.device.type for one in values.values()}))
        for method, named in slots.items()
        for slot, values in named.items()
    }


EXPECTED = {
    "ctp/momentum": "meta",
    "ctp/queue": "cpu,meta",
    "ewc/fisher": "meta",
    "ewc/tasks": "cpu",
}


def test_new_counters_are_on_the_cpu_and_everything_else_on_the_device() -> None:
    run = _run()
    start_slots(run, {})
    assert _devices(run.slots) == EXPECTED
    queue = run.slots["ctp"]["queue"]
    assert {name: one.device.type for name, one in queue.items()} == {
        "image": "meta",
        "text": "meta",
        "position": "cpu",
        "filled": "cpu",
    }


def test_carried_slots_go_where_new_ones_would_be() -> None:
    run = _run()
    start_slots(run, {})
    carried = {
        method: {
            slot: {
                name: torch.empty_like(one, device="cpu")
                if one.is_meta
                else torch.full_like(one, 5)
                for name, one in values.items()
            }
            for slot, values in named.items()
            if slot != "momentum"
        }
        for method, named in run.slots.items()
    }
    start_slots(run, carried)
    assert _devices(run.slots) == EXPECTED
    assert int(run.slots["ctp"]["queue"]["position"]) == 5
    assert int(run.slots["ewc"]["tasks"]["count"]) == 5
