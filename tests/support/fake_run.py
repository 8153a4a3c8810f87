"""A run without a training loop: methods are given features and slots by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vlcpctl.core.batch import Batch, Features, Weights
from vlcpctl.core.method import Method
from vlcpctl.losses.rows import Sigmoid, Softmax, row_loss
from vlcpctl.models.embed import as_features


def fake_batch(size: int) -> Batch:
    """A batch of `size` pairs whose features are known, so that its images and texts are not."""
    nothing = torch.empty(0)
    return Batch(
        [str(number) for number in range(size)],
        torch.zeros(size, dtype=torch.bool),
        nothing,
        nothing,
    )


@dataclass
class FakeRun:
    """What a method sees; `old` and `slow` stand for the previous and the momentum model."""

    weights: Weights = field(default_factory=dict)
    old: Features | None = None
    slow: Features | None = None
    anchor: Weights = field(default_factory=dict)
    phase: str = "train"
    step: int = 0
    steps: int = 1
    seed: int = 0
    width: int = 8
    processes: int = 1
    slots: dict[str, Weights] = field(default_factory=dict)
    started_first: bool = False
    distinct: bool = False
    moments: Weights = field(default_factory=dict)  # of the inputs of layers

    @property
    def first(self) -> bool:
        return self.started_first

    @property
    def everything(self) -> Weights:
        return self.weights

    @property
    def row_loss(self) -> Softmax | Sigmoid:
        return row_loss(self.weights)

    def joined(self, i2t: Tensor, t2i: Tensor) -> Tensor:
        return (i2t + t2i) / 2

    def slot(self, name: str) -> Weights:
        return self.slots[name]

    def previous(self, batch: Batch) -> Features:
        assert self.old is not None
        return self.old

    def features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        assert self.slow is not None
        return self.slow

    def input_moments(self, batch: Batch, layers: Sequence[str]) -> Weights:
        return {name: self.moments[name] for name in layers}

    def start(self, method: Method) -> FakeRun:
        """Give the method its slots."""
        self.slots = {slot.name: slot.start(self) for slot in method.slots(first=self.first)}
        return self


def features(image: Any, text: Any, temperature: float = 0.07) -> Features:
    """Features of raw projections given as arrays or tensors."""
    return as_features(
        torch.as_tensor(image),
        torch.as_tensor(text),
        torch.tensor(1 / temperature, dtype=torch.float64),
    )
