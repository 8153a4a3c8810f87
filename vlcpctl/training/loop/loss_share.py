"""The share of the loss that each process computes.

By default every process computes the whole loss over the features of all processes. With
--local-loss it computes the rows of its own pairs against all features (as `local_loss` of
open_clip does), so that no process holds a whole (B, B) matrix: the loss is the sum over processes.

Shapes: B pairs in the global batch, b of this process, D channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from vlcpctl.core.batch import Features, Terms
from vlcpctl.core.method import Method
from vlcpctl.training.loop.train_run import TrainRun


class LossShare:
    """Cuts features and terms to this process's share, and adds up what processes computed."""

    def __init__(self, run: TrainRun, methods: Sequence[Method]) -> None:
        self.world = run.world
        self.is_local = run.local_loss and run.world.size > 1
        self._by_rows = {"contrastive"} | {
            f"{method.name}/{term}" for method in methods for term in method.by_rows
        }

    @property
    def has_weights(self) -> bool:
        """Whether this process's gradient of weights that the loss uses directly counts.

        It is complete in every process if all of them compute the whole loss: summed over
        processes it would count once for each of them.
        """
        return self.is_local or self.world.rank == 0

    def features(self, out: Features) -> Features:
        """The features of the global batch, with the pairs whose rows are computed here."""
        return replace(out, own=self.world.slice_of(len(out.image))) if self.is_local else out

    def terms(self, terms: Terms) -> Terms:
        """This process's share of the loss terms, () each, by name; the shares add up."""
        if not self.is_local:
            return terms
        # A term that is not cut into rows is the same in all processes.
        return {
            name: value if name in self._by_rows else value / self.world.size
            for name, value in terms.items()
        }

    def whole(self, values: Tensor) -> Tensor:
        """The values of the whole loss, of this process's share (n,); without gradient."""
        values = values.detach()
        if self.is_local:
            self.world.sum_([values])
        return values

    def own_rows(self, gradient_BD: Tensor) -> Tensor:
        """The gradient (b, D) of the own features, of this process's gradient of all features."""
        if self.is_local:
            return self.world.sum_own(gradient_BD)
        return gradient_BD[self.world.slice_of(len(gradient_BD))]
