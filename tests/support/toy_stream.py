"""A method over tasks of a toy model, without a training loop: three parameters, one loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from support.fake_run import FakeRun, fake_batch
from torch import Tensor

from vlcpctl.core.batch import Features, Weights
from vlcpctl.core.method import Method
from vlcpctl.core.params import copy_of
from vlcpctl.training.phases import plan_phases

# The loss of a batch of a task, and the raw features that MAS takes the length of.
Model = Callable[[Weights, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

BATCH = fake_batch(4)


def toy_model(weights: Weights, image: Tensor, caption: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The toy of the CTP authors' numbers.

    Its third, fused, feature has no place in two towers: its length is added to the text's.
    """
    hidden = torch.tanh(image @ weights["W1"].T + weights["b1"])
    text = caption[:, 1:] @ weights["U"].T
    loss = (hidden @ weights["v"] - caption[:, 0]).square().mean()
    loss = loss + text.logsumexp(1).mean()
    fused = (hidden[:, :2] * text).norm(dim=1, keepdim=True)
    return loss, hidden, text.norm(dim=1, keepdim=True) + fused


@dataclass
class ToyStream:
    """Weights that a method is taken along tasks with, and what it hands from task to task."""

    method: Method
    weights: Weights
    model: Model = toy_model
    epochs: int = 2
    optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] = lambda weights: torch.optim.AdamW(
        weights, weight_decay=0.05
    )
    rates: tuple[float, float] = (1e-2, 1e-3)  # cosine, from and to
    carried: dict[str, Weights] = field(default_factory=dict)
    penalties: list[float] = field(default_factory=list)
    anchor: Weights | None = None
    run: FakeRun = field(default_factory=FakeRun)

    def task(self, images: Tensor, captions: Tensor) -> Iterator[FakeRun]:
        """Train on a task and measure it; gives the run after every step."""
        first = self.anchor is None
        self.run = run = FakeRun(
            weights=self.weights, anchor=self.anchor or {}, started_first=first
        ).start(self.method)
        run.slots |= self.carried
        optimizers: dict[str, torch.optim.Optimizer] = {}
        plan = plan_phases(
            [self.method],
            first=first,
            epoch_steps=len(images),
            epochs=self.epochs,
            steps=None,
        )
        for phase in plan:
            run.phase = phase.name.removeprefix(f"{self.method.name}/")
            run.steps = phase.whole
            if phase.weights not in optimizers:
                optimizers[phase.weights] = self.optimizer(
                    [w for w in self.weights.values() if w.requires_grad]
                )
            self._swap(phase.weights)
            for step in range(phase.steps):
                run.step = phase.offset + step
                inputs = images[step % len(images)], captions[step % len(images)]
                aux = self._differentiate(*inputs, contrasts=phase.contrasts)
                with torch.no_grad():
                    if phase.trains:
                        self._update(optimizers[phase.weights], run.step / run.steps)
                    self.method.after_step(run, BATCH, aux, stepped=phase.trains)
                yield run
            self._swap(phase.weights)
        self.carried = self._stream_slots(first=first)
        self.anchor = copy_of(self.weights)

    @torch.no_grad()
    def _swap(self, path: str) -> None:
        if path:
            slot = self.run.slot(path.split("/")[1])
            for name, weight in self.weights.items():
                current = weight.clone()
                weight.copy_(slot[name])
                slot[name].copy_(current)

    def finish(self, images: Tensor, captions: Tensor) -> FakeRun:
        """A whole task."""
        return list(self.task(images, captions))[-1]

    def _differentiate(self, image: Tensor, caption: Tensor, *, contrasts: bool) -> dict[str, Any]:
        for weight in self.weights.values():
            weight.grad = None
        with torch.no_grad():
            self.method.before_forward(self.run)
        loss, *raw = self.model(self.weights, image, caption)
        out = Features(image=raw[0], text=raw[1], raw_image=raw[0], raw_text=raw[1], scale=loss)
        terms, aux = self.method.loss(self.run, BATCH, out)
        held = [value.item() for name, value in terms.items() if name.endswith("penalty")]
        self.penalties += [sum(held)] if held else []
        total = sum(terms.values(), loss if contrasts else torch.zeros(()))
        total.backward()
        grads = {n: w.grad for n, w in self.weights.items() if w.grad is not None}
        with torch.no_grad():
            self.method.after_backward(self.run, grads)
            self.method.add_gradients(self.run, grads)
        return aux

    def _update(self, optimizer: torch.optim.Optimizer, share: float) -> None:
        high, low = self.rates
        for group in optimizer.param_groups:
            group["lr"] = low + (high - low) * (1 + math.cos(math.pi * share)) / 2
        optimizer.step()

    def _stream_slots(self, *, first: bool) -> dict[str, Weights]:
        slots = self.method.slots(first=first)
        return {s.name: copy_of(self.run.slot(s.name)) for s in slots if s.lifetime == "stream"}
