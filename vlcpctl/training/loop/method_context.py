"""The view of a run that methods get: the batch, their own slots, features under other weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from vlcpctl.core.batch import Batch, Features, Tokens, Weights
from vlcpctl.core.method import RowLoss
from vlcpctl.training.loop.input_moments import input_moments
from vlcpctl.training.loop.train_run import TrainRun


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
