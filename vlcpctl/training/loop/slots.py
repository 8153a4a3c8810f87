"""The methods' slots during a run: initialise, carry over from the parent, check, save."""

from __future__ import annotations

from pathlib import Path

import torch

from vlcpctl.checkpoints.checkpoint import ParentCheckpoint
from vlcpctl.core.batch import Weights
from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.core.method import Method, Slot
from vlcpctl.core.params import copy_of
from vlcpctl.files.tensors import read_tensors, require_same_names
from vlcpctl.training.loop.method_context import MethodRun
from vlcpctl.training.loop.train_run import Slots, TrainRun


def start_slots(run: TrainRun, carried: Slots) -> None:
    """Give every method its slots: `stream` slots carried from the parent, all others new.

    Tensors stay where a method creates them: most on the model's device, counters on the CPU, where
    reading them does not wait for a GPU.
    """
    for method in run.methods:
        context = MethodRun(run, method.name)
        run.slots[method.name] = {}
        for slot in method.slots(first=context.first):
            from_parent = (
                carried.get(method.name, {}).get(slot.name) if slot.lifetime == "stream" else None
            )
            values = _started(slot, method, context)
            if from_parent is not None:
                values = {
                    name: value.to(values[name].device if name in values else run.device)
                    for name, value in copy_of(from_parent).items()
                }
            run.slots[method.name][slot.name] = values


def _started(slot: Slot, method: Method, context: MethodRun) -> Weights:
    """The initial tensors of a slot. Raises BadInput if a method of the user's gives no tensors."""
    values: object = slot.start(context)
    wrong = [] if isinstance(values, dict) else [type(values).__name__]
    if isinstance(values, dict):
        others = {name: one for name, one in values.items() if not torch.is_tensor(one)}
        wrong = [f"{type(one).__name__} as {name!r}" for name, one in others.items()]
    if wrong or not isinstance(values, dict):
        raise BadInput(
            f"method {method.name}: the start of slot {slot.name!r} must return tensors by name, "
            f"not {wrong[0]}"
        )
    return values


def carried_slots(
    parent: ParentCheckpoint | None, methods: tuple[Method, ...], *, fresh_state: bool
) -> Slots:
    """The `stream` slots of these methods stored in the parent; {} with `fresh_state`.

    Raises Incompatible if one is missing in a parent that was trained on tasks: starting it at
    zero would silently drop the method's knowledge of them.
    """
    if parent is None or fresh_state:
        return {}
    files, carried = parent.slot_files(), Slots()
    for method in methods:
        carried[method.name] = {}
        for slot in method.slots(first=False):
            if slot.lifetime != "stream":
                continue
            path = files.get(f"{method.name}/{slot.name}")
            if path is not None:
                carried[method.name][slot.name] = read_tensors(path)
            elif parent.manifest.tasks:
                raise Incompatible(
                    f"{parent.path} has no state {slot.name!r} of method {method.name} "
                    f"(it was trained with {parent.manifest.method!r}); "
                    "--fresh-state initialises it"
                )
    return carried


def check_slots(run: TrainRun, carried: Slots, path: Path | None) -> None:
    """Raise Incompatible if a carried slot has other names or shapes than a new one would."""
    for method in run.methods:
        context, from_parent = MethodRun(run, method.name), carried.get(method.name, {})
        for slot in method.slots(first=context.first):
            if slot.name in from_parent:
                what = f"{path}: state {method.name}/{slot.name}"
                try:
                    require_same_names(
                        from_parent[slot.name], _started(slot, method, context), what
                    )
                except Incompatible as error:
                    raise Incompatible(f"{error}; --fresh-state initialises it") from error


def stream_slots(run: TrainRun) -> Slots:
    """The memories that outlive the task, by method and slot: what a checkpoint holds."""
    return {
        method.name: {
            slot.name: run.slots[method.name][slot.name]
            for slot in method.slots(first=run.first)
            if slot.lifetime == "stream"
        }
        for method in run.methods
    }
