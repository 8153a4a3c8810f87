"""The optimizers: Adam, AdamW and SGD by torch's fused kernels, LAMB by timm.

They are classes of our own because constructing any torch.optim.Optimizer imports torch._dynamo,
about a second of CPU time, and because `AdamW(fused=True)` refuses devices on which its kernel runs
(meta, for tests). They have what the training loop and torch.amp.GradScaler use.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from vlcpctl.training.settings import Settings

Group = dict[str, Any]


class Optimizer:
    """What all optimizers here share: groups, state, and two reasons not to update.

    Groups of parameters (`params`) have a learning rate each (`lr`), and more; the state has
    tensors by name for each parameter, and none before its first update. An update is suppressed,
    on the device and without waiting for it, where `halted` or `found_inf` is set: the loss was not
    finite at this or an earlier step, or fp16 gradients overflowed.
    """

    halted: Tensor | None = None  # (), 1.0 once a loss term was not finite; set by OptimizerStep
    found_inf: Tensor | None = None  # (), set by GradScaler for the time of one call of `step`
    grad_scale: Tensor | None = None  # likewise; the loop unscales gradients itself, so it is None
    # Whether the kernel of an update reads `found_inf`; else GradScaler reads it on the host.
    suppresses: bool = False

    def __init__(self, groups: Sequence[Group], defaults: Group) -> None:
        self.param_groups: list[Group] = [{**defaults, **group} for group in groups]
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return self.suppresses  # the name that GradScaler looks for

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        suppressed = self._suppressed()
        if suppressed is not None and suppressed.device.type == "cpu":
            if suppressed:
                return
            suppressed = None
        self._update_all(suppressed)

    def _update_all(self, suppressed: Tensor | None) -> None:
        """Update unless `suppressed`, (), is 1.0; the host does not read it."""
        raise NotImplementedError

    def _suppressed(self) -> Tensor | None:
        """1.0 if this update must not happen, else 0.0, (); None if nothing could prevent it."""
        assert self.grad_scale is None, "gradients are unscaled before the update"
        if self.halted is None or self.found_inf is None:
            return self.found_inf if self.halted is None else self.halted
        return torch.maximum(self.halted, self.found_inf.to(self.halted.device))

    def _with_gradients(self) -> Iterator[tuple[Group, list[Tensor], list[Tensor]]]:
        """Each group, its weights that have a gradient, and their gradients."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                yield group, weights, [weight.grad for weight in weights]

    def _states(self, weights: Sequence[Tensor], name: str) -> list[Tensor]:
        return [self.state[weight][name] for weight in weights]


class FusedAdam(Optimizer):
    """Adam or AdamW (`decoupled`) by torch's fused kernels; Kingma and Ba, 2015.

    The state is `exp_avg`, `exp_avg_sq` and `step`, a float32 scalar on the weight's device.
    """

    suppresses: bool = True

    def __init__(self, groups: Sequence[Group], defaults: Group, *, decoupled: bool) -> None:
        super().__init__(groups, defaults)
        self._update = adamw if decoupled else adam

    def _update_all(self, suppressed: Tensor | None) -> None:
        for group, weights, grads in self._with_gradients():
            for weight in weights:
                self._start(weight)
            beta1, beta2 = group["betas"]
            self._update(
                weights,
                grads,
                self._states(weights, "exp_avg"),
                self._states(weights, "exp_avg_sq"),
                [],
                self._states(weights, "step"),
                fused=True,
                found_inf=suppressed,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )

    def _start(self, weight: Tensor) -> None:
        state = self.state[weight]
        if not state:
            # The kernel reads the count where it updates the weight.
            state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)


class FusedSgd(Optimizer):
    """Stochastic gradient descent with momentum by torch's fused kernel.

    The state is `momentum_buffer`; there is none without momentum.
    """

    suppresses: bool = True

    def _update_all(self, suppressed: Tensor | None) -> None:
        for group, weights, grads in self._with_gradients():
            buffers: list[Tensor | None] = [None] * len(weights)
            if group["momentum"]:
                for weight in weights:
                    # 0 * momentum + gradient is torch's first buffer, the gradient itself. Torch
                    # leaves it uninitialised where the first update is suppressed.
                    if not self.state[weight]:
                        self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
                buffers = [*self._states(weights, "momentum_buffer")]
            sgd(
                weights,
                grads,
                buffers,
                fused=True,
                found_inf=suppressed,
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=group["lr"],
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


class Lamb(Optimizer):
    """LAMB (You et al., 2020, algorithm 2) by timm: Adam's updates rescaled weight by weight.

    A group with `always_adapt` is rescaled also without weight decay. The state is `exp_avg`,
    `exp_avg_sq` and `step`, a float32 scalar on the CPU.
    """

    def __init__(self, groups: Sequence[Group], defaults: Group) -> None:
        from timm.optim.lamb import Lamb as TimmLamb

        super().__init__(groups, defaults)
        # No clipping here: --clip-norm has clipped already.
        groups = [{**group} for group in self.param_groups]
        self._timm: Any = TimmLamb(groups, max_grad_norm=None)
        self._defaults = self._timm.defaults

    def _update_all(self, suppressed: Tensor | None) -> None:
        for group, weights, grads in self._with_gradients():
            if suppressed is None:
                self._update(group, weights)
            else:
                self._update_unless(suppressed > 0, group, weights, grads)

    def _update_unless(
        self, is_set: Tensor, group: Group, weights: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> None:
        """Update, and undo that on the device: timm has no such flag. Costs a copy of weights."""
        before = [weight.clone() for weight in weights]
        for grad in grads:
            grad.masked_fill_(is_set, 0)  # so that the moments stay finite
        self._update(group, weights)
        for weight, kept in zip(weights, before, strict=True):
            weight.copy_(torch.where(is_set, kept, weight))

    def _update(self, group: Group, weights: Sequence[Tensor]) -> None:
        # timm counts steps by group; here a weight may lack a gradient in some steps.
        by_count: defaultdict[float, list[Tensor]] = defaultdict(list)
        for weight in weights:
            state = self.state[weight]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"] = torch.zeros_like(weight)
                state["exp_avg_sq"] = torch.zeros_like(weight)
            by_count[state["step"].item()].append(weight)
        self._timm.state = self.state
        self._timm.param_groups = [
            {**self._defaults, **group, "params": part, "step": torch.tensor(count)}
            for count, part in by_count.items()
        ]
        self._timm.step()
        for weight in weights:
            self.state[weight]["step"] += 1


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
