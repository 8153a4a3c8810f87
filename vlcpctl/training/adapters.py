"""Low-rank adapters (LoRA: Hu et al., ICLR 2022, eq. 3) that train in place of a model's weights.

A weight W (O, I) becomes W0 + (alpha / r) B A, with A (r, I) random and B (O, r) zero at the start.
The model's own parameters hold this sum, computed anew from W0, A and B after each update, so that
nothing drifts. Methods, processes and micro-batches therefore work as without adapters: they see,
average and penalise W, and the gradient of W, under its name. The loss reaches A and B through W
alone, and W is linear in each of them, so that their gradients follow from that of W:

    dL/dA = (alpha / r) B^T dL/dW,    dL/dB = (alpha / r) dL/dW A^T
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor
from torch.nn.init import kaiming_uniform_

from vlcpctl.core.batch import Weights
from vlcpctl.core.params import copy_of
from vlcpctl.core.seeds import torch_seed
from vlcpctl.files.tensors import write_tensors
from vlcpctl.training.lora import LoraSize, adapted_names
from vlcpctl.training.optimizers import Optimizer


@final
@dataclass(frozen=True)
class Adapters:
    """The adapters of a model: the weights that they change, live, and what these started from."""

    size: LoraSize
    everything: Weights  # the model's parameters, live
    base: Weights  # W0 of the adapted ones
    tensors: Weights  # A and B, named WEIGHT.lora_A and WEIGHT.lora_B

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], size: LoraSize, seed: int) -> Adapters:
        """New adapters of a model with these weights, which they do not change yet.

        A is uniform within 1 / sqrt(I), as in the authors' code and in peft.
        """
        names = adapted_names(weights)
        tensors: Weights = {}
        for name in names:
            weight = weights[name]
            generator = torch.Generator().manual_seed(torch_seed(seed, "lora", name))
            start = torch.empty(size.rank, weight.shape[1], dtype=weight.dtype)
            kaiming_uniform_(start, a=math.sqrt(5), generator=generator)
            tensors[f"{name}.lora_A"] = start.to(weight.device).requires_grad_()
            tensors[f"{name}.lora_B"] = weight.new_zeros(
                weight.shape[0], size.rank
            ).requires_grad_()
        return cls(size, dict(weights), copy_of({name: weights[name] for name in names}), tensors)

    @torch.no_grad()
    def pull_back(self) -> None:
        """Set the gradients of A and B from those of the weights; None where there is none."""
        for name in self.base:
            a_rI, b_Or = self._pair(name)
            grad_OI = self.everything[name].grad
            if grad_OI is not None:
                a_rI.grad = self.size.scale * (b_Or.T @ grad_OI)
                b_Or.grad = self.size.scale * (grad_OI @ a_rI.T)

    @torch.no_grad()
    def merge_(self) -> None:
        """Compute the weights from what they started from and the adapters, in place."""
        for name, start_OI in self.base.items():
            a_rI, b_Or = self._pair(name)
            weight_OI = self.everything[name]
            torch.addmm(start_OI, b_Or, a_rI, alpha=self.size.scale, out=weight_OI)

    def optimizer(self, inner: Optimizer) -> Optimizer:
        """The optimizer of the model's weights that `inner`, one of the adapters, stands for."""
        return AdapterOptimizer(inner, self)

    def write(self, directory: Path) -> None:
        """Write A and B to a checkpoint, beside the merged weights."""
        write_tensors(directory / "adapter.safetensors", self.tensors)

    def _pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self.tensors[f"{name}.lora_A"], self.tensors[f"{name}.lora_B"]


@final
class AdapterOptimizer(Optimizer):
    """An optimizer of adapters that the training step uses as one of the model's weights.

    Its groups contain the weights as well, so that their gradients are set to None and unscaled
    with fp16; only the adapters are updated.
    """

    def __init__(self, inner: Optimizer, adapters: Adapters) -> None:
        super().__init__([], {})
        self.inner, self.adapters = inner, adapters
        self.state, self.suppresses = inner.state, inner.suppresses
        # The very groups of the inner one, whose learning rates are set through these.
        self.param_groups = [*inner.param_groups, {"params": [*adapters.everything.values()]}]

    @torch.no_grad()
    def step(self) -> None:
        """Update the adapters by the gradients that `pull_back` has set, and merge them."""
        self.inner.halted, self.inner.found_inf = self.halted, self.found_inf
        self.inner.step()
        self.inner.found_inf = None
        self.adapters.merge_()
