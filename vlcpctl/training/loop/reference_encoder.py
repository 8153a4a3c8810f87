"""The pairs of --reference in an optimizer step, encoded beside those of the batch.

Shapes: r reference pairs of this process, D channels of the shared space.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vlcpctl.core.batch import Batch, Weights
from vlcpctl.core.params import copy_of, trainable
from vlcpctl.core.seeds import torch_seed
from vlcpctl.training.loop.running_statistics import RunningStatistics
from vlcpctl.training.loop.train_run import TrainRun


class ReferenceEncoder:
    """Encodes this process's reference pairs in micro-batches, and backpropagates.

    Without such pairs it does nothing. As for pairs of the batch, features become leaves of the
    loss, and several micro-batches are encoded twice: see `training.loop.step`. Batch norms count
    the pairs to learn alone.
    """

    def __init__(self, run: TrainRun, batch: Batch | None, statistics: RunningStatistics) -> None:
        self.run, self.batch, self.statistics = run, batch, statistics
        self._sides: tuple[Tensor, Tensor] | None = None

    def encode(self) -> list[Tensor]:
        """The raw projections of images and texts, (r, D) each, or [] without reference pairs."""
        if self.batch is None:
            return []
        chunks = self.run.chunks(self.batch)
        if len(chunks) == 1:
            self._sides = self._encode(self.batch, chunks[0])
            return [*self._sides]
        with torch.no_grad():
            parts = [self._encode(self.batch, chunk) for chunk in chunks]
        return [torch.cat(side) for side in zip(*parts, strict=True)]

    def backward(self, gradients: list[Tensor | None]) -> None:
        """Backpropagate the gradients (r, D) of images and texts; [] without reference pairs.

        A side that no loss uses has None, and its tower no backward pass.
        """
        if self.batch is None or not any(grad is not None for grad in gradients):
            return
        for chunk in self.run.chunks(self.batch):
            sides = self._encode(self.batch, chunk) if self._sides is None else self._sides
            pairs = zip(sides, gradients, strict=True)
            products = [(side * grad[chunk]).sum() for side, grad in pairs if grad is not None]
            torch.stack(products).sum().backward()

    def backward_apart(self, gradients: list[Tensor | None]) -> Weights:
        """Backpropagate as `backward` does, and return a copy of what that adds, by weight.

        It is summed over processes, and lacks weights that are not reached. {} without reference
        pairs.
        """
        weights = trainable(self.run.weights)
        before = {name: one.grad for name, one in weights.items() if one.grad is not None}
        for name in before:
            weights[name].grad = None
        self.backward(gradients)
        reached = {name: one.grad for name, one in weights.items() if one.grad is not None}
        apart = copy_of(reached)
        for name, grad in before.items():
            weights[name].grad = grad + reached[name] if name in reached else grad
        # Every process encodes pairs of its own, with the same towers: all reach the same weights.
        self.run.world.sum_(apart.values())
        return apart

    def _encode(self, batch: Batch, chunk: slice) -> tuple[Tensor, Tensor]:
        # Seeded by position, as for pairs: see OptimizerStep._encode.
        run = self.run
        first = run.world.slice_of(len(batch.keys)).start + chunk.start
        purpose = (run.position.phase, run.position.step, "reference", first)
        torch.manual_seed(torch_seed(run.seed, *purpose))
        with self.statistics.kept():
            return run.encode(batch, chunk)
