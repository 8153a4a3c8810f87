"""Optimizers by name, with weight decay on matrices only unless `--decay all`, and schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vlcpctl.training.config.settings import Settings
from vlcpctl.training.loop.optimizers import FusedAdam, FusedSgd, Lamb, Optimizer


def new_optimizer(weights: Mapping[str, Tensor], settings: Settings) -> Optimizer:
    """The optimizer that the settings name, over all weights that require gradients."""
    groups = decay_groups(weights, settings)
    adaptive: dict[str, Any] = {"lr": settings.lr, "betas": settings.betas, "eps": settings.eps}
    if settings.optimizer in ("adamw", "adam"):
        return FusedAdam(groups, adaptive, decoupled=settings.optimizer == "adamw")
    if settings.optimizer == "lamb":
        # What may be decayed is rescaled, also by a decay of 0; biases and norms are neither
        # decayed nor rescaled, as the paper does for BERT.
        for group in groups:
            group["always_adapt"] = group.pop("decays")
        return Lamb(groups, adaptive)
    return FusedSgd(groups, {"lr": settings.lr, "momentum": settings.momentum})


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
        {"params": decayed, "weight_decay": settings.weight_decay, "decays": True},
        {"params": undecayed, "weight_decay": 0.0, "decays": False},
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
        # Fused kernels count on the device of the weight, LAMB on the CPU.
        on_cpu = field == "step" and isinstance(optimizer, Lamb)
        home = value.to("cpu" if on_cpu else weights[name].device)
        # In the memory format of the weight: fused kernels read both in the order of memory.
        like = weights[name] if home.shape == weights[name].shape else home
        restored = torch.empty_like(like, dtype=home.dtype, device=home.device)
        optimizer.state[weights[name]][field] = restored.copy_(home)


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
