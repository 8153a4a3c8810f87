"""One optimizer step: forward and backward in chunks, one loss over the batch, hooks in order.

The loss sees the features of the whole batch as leaves. Its gradient with respect to them is then
carried through the encoder chunk by chunk, and process by process: the same arithmetic whether a
batch is encoded at once, in micro-batches (as GradCache does), or by several processes. Terms over
tokens are sums over a chunk's own, so they need no leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vlcpctl.core.errors import Diverged
from vlcpctl.core.features import as_features
from vlcpctl.core.method import Batch, Method, Terms, Tokens
from vlcpctl.core.seeds import torch_seed
from vlcpctl.engine.method_run import MethodRun
from vlcpctl.engine.negatives import PseudoSide, with_pseudo_texts
from vlcpctl.engine.run import TrainRun
from vlcpctl.engine.token_terms import TokenTerms
from vlcpctl.losses.contrastive import image_text

MAX_LOG_SCALE = math.log(100)  # a learned temperature stays above 0.01, as in CLIP
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Step:
    """Performs steps for a run; holds the optimizer and the fp16 loss scaler."""

    def __init__(self, run: TrainRun, optimizer: Optimizer, methods: Sequence[Method]) -> None:
        self.run, self.optimizer = run, optimizer
        fp16 = run.settings.precision == "fp16" and run.position.plan.trains
        self.scaler = torch.amp.GradScaler(run.device.type, enabled=fp16)
        self.views = [(method, MethodRun(run, method.name)) for method in methods]
        self.statistics = _running_statistics(run.encoder.module)
        needs = [method.needs(first=run.first) for method in methods]
        self.inversion = next((need.pseudo_texts for need in needs if need.pseudo_texts), None)
        asked = any(type(method).token_loss is not Method.token_loss for method in methods)
        masks = run.position.plan.contrasts and run.settings.mask_share > 0
        self.fuses = run.encoder.family == "fusion" and (masks or asked)

    def __call__(self, batch: Batch) -> dict[str, float]:
        """Train on one batch (or only measure gradients) and return the value of every term."""
        trains = self.run.position.plan.trains
        self.optimizer.zero_grad(set_to_none=True)
        if self.inversion is not None and batch.memory is not None:
            batch = with_pseudo_texts(self.run, batch, self.inversion)
        with torch.no_grad():
            for method, view in self.views:
                method.before_forward(view)
        terms, aux = self._forward_backward(batch)
        grads = self._gradients()
        with torch.no_grad():
            for method, view in self.views:
                method.after_backward(view, grads)
            for method, view in self.views:
                method.add_gradients(view, grads)
            stepped = self._update() if trains else False
            if trains:
                self._share_statistics()
            for (method, view), own in zip(self.views, aux, strict=True):
                method.after_step(view, batch, own, stepped=stepped)
        return terms

    def _forward_backward(self, batch: Batch) -> tuple[dict[str, float], list[dict[str, Any]]]:
        run = self.run
        chunks = run.chunks(batch)
        image, text, tokens = self._encode_all(batch, chunks)
        pseudo = PseudoSide(run, batch.pseudo)
        sides = [image, text, *pseudo.encode()]
        leaves = [run.world.gather(side.detach()).requires_grad_() for side in sides]
        total, terms, aux = self._loss(batch, *leaves)
        self.scaler.scale(total).backward()
        if run.world.rank > 0:  # what a loss gives a weight itself is whole in every process
            self.optimizer.zero_grad(set_to_none=True)
        pseudo.backward([_gradient(leaf) for leaf in leaves[2:]])
        own = run.world.slice_of(len(batch.keys))
        of_tokens = TokenTerms(run, self.views, batch)
        for chunk in chunks:
            if len(chunks) > 1:
                image, text, tokens = self._encode(batch, chunk, fuses=self.fuses)
            grads = [_gradient(leaf)[own][chunk] for leaf in leaves[:2]]
            extra = None if tokens is None else of_tokens.of(chunk, tokens)
            self._backward([image, text], grads, extra)
        found = of_tokens.values()
        self._refuse_non_finite(found)
        return {**terms, "loss": terms["loss"] + sum(found.values()), **found}, aux

    def _encode_all(
        self, batch: Batch, chunks: list[slice]
    ) -> tuple[Tensor, Tensor, Tokens | None]:
        """The local projections; of a single chunk with their graph, and with its tokens."""
        if len(chunks) == 1:
            return self._encode(batch, chunks[0], fuses=self.fuses)
        with torch.no_grad():
            parts = [self._encode(batch, chunk, fuses=False)[:2] for chunk in chunks]
        image, text = (torch.cat(side) for side in zip(*parts, strict=True))
        return image, text, None

    def _backward(
        self, outputs: list[Tensor], grads: list[Tensor], of_tokens: Tensor | None
    ) -> None:
        """Carry the leaves' gradients and that of the token terms through the encoder at once."""
        if of_tokens is not None:
            outputs = [*outputs, self.scaler.scale(of_tokens)]
            grads = [*grads, torch.ones_like(of_tokens)]
        torch.autograd.backward(outputs, grads)

    def _encode(
        self, batch: Batch, chunk: slice, *, fuses: bool
    ) -> tuple[Tensor, Tensor, Tokens | None]:
        # Nothing random survives a step, and a chunk's second forward repeats its first (dropout);
        # a process draws what a micro-batch in its place would.
        position = self.run.position
        first = self.run.world.slice_of(len(batch.keys)).start + chunk.start
        torch.manual_seed(torch_seed(self.run.seed, position.phase, position.step, first))
        if fuses:
            return self.run.encode_tokens(batch, chunk)
        return *self.run.encode(batch, chunk), None

    def _loss(
        self, batch: Batch, image: Tensor, text: Tensor, pseudo: Tensor | None = None
    ) -> tuple[Tensor, dict[str, float], list[dict[str, Any]]]:
        out = as_features(image, text, self.run.scale(self.run.weights), pseudo)
        terms: Terms = {}
        replaced = any(method.replaces_base for method, _ in self.views)
        if self.run.position.plan.contrasts and not replaced:
            terms["contrastive"] = self.run.joined(*image_text(out.image, out.text, out.scale))
        kept = []
        for method, view in self.views:
            own, aux = method.loss(view, batch, out)
            terms |= {f"{method.name}/{name}": value for name, value in own.items()}
            kept.append(aux)
        total = (
            torch.stack(list(terms.values())).sum()
            if len(terms) > 1
            else next(iter(terms.values()))
        )
        values = {name: value.item() for name, value in terms.items()}
        self._refuse_non_finite(values)
        return total, {"loss": total.item(), **values}, kept

    def _refuse_non_finite(self, values: Mapping[str, float]) -> None:
        bad = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
        if bad:
            position = self.run.position
            raise Diverged(f"step {position.step} of phase {position.phase}: {', '.join(bad)}")

    def _gradients(self) -> dict[str, Tensor]:
        """Gradients by name: unscaled, and summed over processes."""
        weights, world = self.run.weights, self.run.world
        found = [weight.grad is not None for weight in weights.values()]
        used = world.any(found, self.run.device)
        grads = {
            name: _grad_of(weight)
            for (name, weight), somewhere in zip(weights.items(), used, strict=True)
            if somewhere
        }
        world.sum_(grads.values())
        if grads:
            self.scaler.unscale_(self.optimizer)
        return grads

    def _share_statistics(self) -> None:
        # A batch norm sees what is encoded at once; processes go on with the mean of what they saw.
        if self.run.world.size > 1 and self.statistics:
            self.run.world.sum_(self.statistics)
            for counted in self.statistics:
                counted.div_(self.run.world.size)

    def _update(self) -> bool:
        if self.run.settings.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.run.weights.values(), self.run.settings.clip_norm)
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        temperature = self.run.weights["logit_scale"]
        if temperature.requires_grad:
            temperature.clamp_(max=MAX_LOG_SCALE)
        return self.scaler.get_scale() >= before


def _running_statistics(module: nn.Module) -> list[Tensor]:
    """What batch norms have counted, live."""
    norms = [part for part in module.modules() if isinstance(part, BATCH_NORMS)]
    both = [counted for norm in norms for counted in (norm.running_mean, norm.running_var)]
    return [counted for counted in both if counted is not None]


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad


def _grad_of(weight: Tensor) -> Tensor:
    """Its gradient, zero where only another process has used it."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad
