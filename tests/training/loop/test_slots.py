"""Slots are where their methods created them: models on the device, counters on the CPU."""

from __future__ import annotations

import torch

from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.ewc import Ewc
from vlcpctl.models import encoders
from vlcpctl.training.method_run import start_slots
from vlcpctl.training.run import Slots, TrainRun
from vlcpctl.training.settings import Settings

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
