"""A run as a method sees it: the batch, its own memory, other weights, nothing of the engine."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vlcpctl.core.method import Batch, Features, Tokens, Weights
from vlcpctl.core.params import copy_of
from vlcpctl.engine.run import Slots, TrainRun


@dataclass(frozen=True)
class MethodRun:
    """A run as one method sees it: its own slots, and nothing of the engine."""

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
        """The step of the current phase."""
        return self.run.position.plan.offset + self.run.position.step

    @property
    def steps(self) -> int:
        """How many steps the current phase has."""
        return self.run.position.plan.whole

    @property
    def weights(self) -> Weights:
        """The trained model's parameters, and its BatchNorm statistics if those are blended too."""
        return (
            self.run.everything_blended() if self.run.settings.blend_buffers else self.run.weights
        )

    @property
    def everything(self) -> Weights:
        """The trained model's parameters and buffers, live."""
        return self.run.everything()

    @property
    def anchor(self) -> Weights:
        """The previous model's tensors under the same names."""
        return {name: self.run.anchor[name] for name in self.weights}

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return self.run.world.size

    @property
    def width(self) -> int:
        """Channels of the shared space."""
        return self.run.width

    def joined(self, i2t: Tensor, t2i: Tensor) -> Tensor:
        """Both directions of a contrast as the base loss takes them."""
        return self.run.joined(i2t, t2i)

    def slot(self, name: str) -> Weights:
        """One of the method's own slots."""
        return self.run.slots[self.method][name]

    def previous(self, batch: Batch) -> Features:
        """The frozen previous model's view."""
        return self.run.previous_features(batch)

    def features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        """The model's view under other weights."""
        return self.run.frozen_features(batch, weights, tokens=tokens)


@dataclass(frozen=True)
class ChunkPart:
    """What is encoded at once of this process's pairs, as terms that are sums see it."""

    run: TrainRun
    batch: Batch
    chunk: slice
    masked: int

    @property
    def pairs(self) -> int:
        """The pairs of the global batch."""
        return len(self.batch.keys)

    def previous(self) -> Tokens:
        """The frozen previous model's tokens."""
        return self.run.frozen_tokens(self.batch, self.chunk, self.run.previous_weights)

    def under(self, weights: Weights) -> Tokens:
        """The model's tokens under other weights."""
        return self.run.frozen_tokens(self.batch, self.chunk, weights)


def start_slots(run: TrainRun, carried: Slots) -> None:
    """Give every method its slots: from the parent where they outlive tasks, else new."""
    for method in run.methods:
        view = MethodRun(run, method.name)
        run.slots[method.name] = {}
        for slot in method.slots(first=view.first):
            handed = (
                carried.get(method.name, {}).get(slot.name) if slot.lifetime == "stream" else None
            )
            values = copy_of(handed) if handed is not None else slot.start(view)
            run.slots[method.name][slot.name] = {
                name: value.to(run.device) for name, value in values.items()
            }
