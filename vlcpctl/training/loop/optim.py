"""Optimizers by name, with weight decay on matrices only unless `--decay all`, and schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from vlcpctl.training.config.settings import Settings


class Lamb(Optimizer):
    """LAMB (You et al., 2020, algorithm 2): Adam's updates rescaled layer by layer."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)

    def _update(self, weight: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        mean = state["exp_avg"].lerp_(weight.grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
        count = state["step"].item()
        direction = (mean / (1 - beta1**count)) / (
            (square / (1 - beta2**count)).sqrt() + group["eps"]
        )
        direction += group["weight_decay"] * weight
        weight.add_(
            direction, alpha=-group["lr"] * _trust(weight, direction, group["weight_decay"])
        )


def _trust(weight: Tensor, direction: Tensor, weight_decay: float) -> float:
    # Biases and norms are neither decayed nor scaled, as the paper does for BERT.
    if not weight_decay:
        return 1.0
    size, length = weight.norm().item(), direction.norm().item()
    return size / length if size > 0 and length > 0 else 1.0


def new_optimizer(weights: Mapping[str, Tensor], settings: Settings) -> Optimizer:
    """The optimizer that the settings name, over all weights that require gradients."""
    groups = decay_groups(weights, settings)
    adaptive: dict[str, Any] = {"lr": settings.lr, "betas": settings.betas, "eps": settings.eps}
    if settings.optimizer == "adamw":
        return AdamW(groups, **adaptive, foreach=False)
    if settings.optimizer == "adam":
        return Adam(groups, **adaptive, foreach=False)
    if settings.optimizer == "lamb":
        return Lamb(groups, **adaptive, weight_decay=settings.weight_decay)
    return SGD(groups, lr=settings.lr, momentum=settings.momentum, foreach=False)


def decay_groups(weights: Mapping[str, Tensor], settings: Settings) -> list[dict[str, Any]]:
    """Parameter groups with and without weight decay; empty groups are left out.

    Norms, biases and the temperature are not decayed unless `decay` is `all`.
    """
    trained = {name: weight for name, weight in sorted(weights.items()) if weight.requires_grad}
    decayed = [weight for weight in trained.values() if settings.decay == "all" or weight.ndim >= 2]
    undecayed = [
        weight for weight in trained.values() if not (settings.decay == "all" or weight.ndim >= 2)
    ]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def state_tensors(optimizer: Optimizer, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The optimizer's state tensors, named `WEIGHT/exp_avg` and so on.

    `Optimizer.state_dict` numbers parameters by position instead, which another order of the
    model's weights would silently reassign.
    """
    return {
        f"{name}/{field}": value.detach()
        for name, weight in weights.items()
        for field, value in optimizer.state.get(weight, {}).items()
        if value is not None
    }


@torch.no_grad()
def restore(
    optimizer: Optimizer, weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    """Restore in place the state that `state_tensors` returned."""
    for path, value in tensors.items():
        name, _, field = path.rpartition("/")
        # torch keeps the step counter on the CPU whatever the device of the weight.
        home = value if field == "step" else value.to(weights[name].device)
        optimizer.state[weights[name]][field] = home.clone()


def learning_rate(settings: Settings, step: int, steps: int, drops: int) -> float:
    """The learning rate of step `step` (from 0) of `steps`, after `drops` plateaus.

    Cosine decays from lr towards min_lr after a linear warm-up. The last step is just above min_lr,
    as in CTP's code.

    >>> learning_rate(Settings(lr=1.0, schedule="cosine"), 5, 10, 0)
    0.5
    """
    warm = round(settings.warmup * steps)
    if step < warm:
        return settings.lr * (step + 1) / warm
    if settings.schedule == "constant":
        return settings.lr
    if settings.schedule == "plateau":
        return max(settings.min_lr, settings.lr * PLATEAU_FACTOR**drops)
    share = (step - warm) / max(1, steps - warm)
    return settings.min_lr + (settings.lr - settings.min_lr) * (1 + math.cos(math.pi * share)) / 2


PLATEAU_FACTOR = 0.1  # DHA, section 4.1


@dataclass(frozen=True)
class Plateau:
    """Counts validations without a lower loss; one more than the patience is a drop."""

    best: float | None = None
    stalled: int = 0
    drops: int = 0

    def after(self, loss: float, patience: int) -> Plateau:
        """The state after one more validation, with this loss.

        >>> state = Plateau().after(1.0, 1).after(1.0, 1).after(1.0, 1)
        >>> state.drops
        1
        """
        if self.best is None or loss < self.best:
            return replace(self, best=loss, stalled=0)
        if self.stalled < patience:
            return replace(self, stalled=self.stalled + 1)
        return replace(self, stalled=0, drops=self.drops + 1)
