"""The view of a run that methods get: the batch, their own slots, features under other weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from vlcpctl.checkpoints.checkpoint import ParentCheckpoint
from vlcpctl.core.batch import Batch, Features, Tokens, Weights
from vlcpctl.core.errors import Incompatible
from vlcpctl.core.method import Method, RowLoss
from vlcpctl.core.params import copy_of
from vlcpctl.files.tensors import read_tensors, require_same_names
from vlcpctl.models.execution import evaluating
from vlcpctl.training.run import Slots, TrainRun


@dataclass(frozen=True)
class MethodRun:
    """Implements `core.method.Run` for one method: hides the loop and the other methods' slots.

    Methods depend on this interface alone, so that the loop can change without them.
    """

    run: TrainRun
    method: str

    @property
    def first(self) -> bool:
        """Whether there is no previous model."""
        return self.run.first

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.run.seed

    @property
    def phase(self) -> str:
        """The current phase, as the method named it."""
        return self.run.position.plan.name.removeprefix(f"{self.method}/")

    @property
    def step(self) -> int:
        """The optimizer step within the current phase, from 0; it counts on over epochs."""
        return self.run.position.plan.offset + self.run.position.step

    @property
    def steps(self) -> int:
        """How many steps the current phase has."""
        return self.run.position.plan.whole

    @property
    def weights(self) -> Weights:
        """The trained model's parameters, and its BatchNorm statistics if those are blended too."""
        return self.run.floating_tensors() if self.run.settings.blend_buffers else self.run.weights

    @property
    def everything(self) -> Weights:
        """The trained model's parameters and buffers, live."""
        return self.run.everything()

    @property
    def anchor(self) -> Weights:
        """The frozen initial weights, for the names in `weights` only."""
        return {name: self.run.anchor[name] for name in self.weights}

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return self.run.world.size

    @property
    def width(self) -> int:
        """D, the channels of the shared space."""
        return self.run.width

    @property
    def distinct(self) -> bool:
        """Whether batches have groups (--negatives distinct)."""
        return self.run.settings.negatives == "distinct"

    @property
    def row_loss(self) -> RowLoss:
        """The base loss of rows of similarities: softmax or sigmoid."""
        return self.run.row_loss

    def joined(self, i2t: Tensor, t2i: Tensor) -> Tensor:
        """The losses of both directions, () each, combined as in the base loss: mean or sum."""
        return self.run.joined(i2t, t2i)

    def slot(self, name: str) -> Weights:
        """The tensors of one of the method's own slots, live."""
        return self.run.slots[self.method][name]

    def previous(self, batch: Batch) -> Features:
        """The frozen previous model's features of the batch, (B, D) each."""
        return self.run.previous_features(batch)

    def features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        """The features of the batch, (B, D) each, under other weights, without gradient."""
        return self.run.frozen_features(batch, weights, tokens=tokens)

    def input_moments(self, batch: Batch, layers: Sequence[str]) -> Weights:
        """X^T X of the inputs X of linear layers, (I, I) each, by the names of their weights."""
        return input_moments(self.run, batch, layers)


@dataclass(frozen=True)
class ChunkPart:
    """Implements `core.method.Part`: one chunk of this process's pairs, for terms over tokens."""

    run: TrainRun
    batch: Batch
    chunk: slice
    masked: int | Tensor

    @property
    def pairs(self) -> int:
        """B, the pairs of the global batch, by which sums over pairs are divided."""
        return len(self.batch.keys)

    def previous(self) -> Tokens:
        """The frozen previous model's token outputs for this chunk."""
        return self.run.frozen_tokens(self.batch, self.chunk, self.run.previous_weights)

    def under(self, weights: Weights) -> Tokens:
        """The token outputs of this chunk under other weights, without gradient."""
        return self.run.frozen_tokens(self.batch, self.chunk, weights)


def start_slots(run: TrainRun, carried: Slots, path: Path | None = None) -> None:
    """Give every method its slots: those `carried` from the parent at a path, all others new.

    Tensors stay where a method creates them: most on the model's device, counters on the CPU, where
    reading them does not wait for a GPU. Raises Incompatible if a carried slot has other names or
    shapes than a new one.
    """
    for method in run.methods:
        context = MethodRun(run, method.name)
        run.slots[method.name] = {}
        for slot in method.slots(first=context.first):
            values = slot.start(context)
            found = carried.get(method.name, {}).get(slot.name)
            if found is not None:
                try:
                    require_same_names(found, values, f"{path}: state {method.name}/{slot.name}")
                except Incompatible as error:
                    raise Incompatible(f"{error}; --fresh-state initialises it") from error
                values = {
                    name: value.to(values[name].device) for name, value in copy_of(found).items()
                }
            run.slots[method.name][slot.name] = values


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


@torch.no_grad()
def input_moments(run: TrainRun, batch: Batch, layers: Sequence[str]) -> Weights:
    """X^T X of the inputs X (n, I) of linear layers, (I, I) each, by the names of their weights.

    The tokens are those of the global batch, those of padding included; a fusion model also fuses
    its pairs. The model has its own weights, in eval mode.
    """
    module, found = run.encoder.module, {}
    hooks = []
    for name in layers:
        layer = module.get_submodule(name.removesuffix(".weight"))
        assert isinstance(layer, nn.Linear), f"{name} is not the weight of a linear layer"
        found[name] = layer.weight.new_zeros(layer.in_features, layer.in_features)
        hooks.append(layer.register_forward_pre_hook(_adding_to(found[name])))
    encode = run.encode_tokens if run.encoder.family == "fusion" else run.encode
    try:
        with run.encoder.uncompiled(), evaluating(module):
            for chunk in run.chunks(batch):
                encode(batch, chunk)
    finally:
        for hook in hooks:
            hook.remove()
    for moment_II in found.values():  # one by one: a message of all would double the memory
        run.world.sum_([moment_II])
    return found


def _adding_to(moment_II: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def add(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x_nI = inputs[0].reshape(-1, len(moment_II)).to(moment_II.dtype)
        moment_II.addmm_(x_nI.T, x_nI)  # in place: autocast does not round it to halves

    return add
