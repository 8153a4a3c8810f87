"""One optimizer step: encode in chunks, compute one loss over the global batch, call the hooks.

A contrastive loss compares every image with every text, so it is not a sum over micro-batches. The
loss therefore takes the features of the whole batch as leaf tensors, and their gradients are then
backpropagated through the encoder chunk by chunk, each process its own part (GradCache: Gao et al.,
2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"). The loss is the
same whether a batch is encoded at once, in micro-batches, or by several processes, but for batch
norms: they normalise over what is encoded at once. Terms over tokens are sums over a chunk's own
tokens, so they need no leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from vlcpctl.core.batch import Batch, Terms, Tokens
from vlcpctl.core.errors import Diverged
from vlcpctl.core.method import Method
from vlcpctl.core.params import add_
from vlcpctl.core.seeds import torch_seed
from vlcpctl.losses.contrastive import image_text
from vlcpctl.models.embed import as_features
from vlcpctl.training.beside import (
    BesideEncoder,
    TokenTerms,
    backward_apart,
    pseudo_text_encoder,
    reference_encoder,
    with_pseudo_texts,
)
from vlcpctl.training.gradients import GradientSum, LossShare, RunningStatistics
from vlcpctl.training.method_run import MethodRun
from vlcpctl.training.optimizers import Optimizer
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.run import TrainRun

# Reading a value waits until the device has done all work so far. A GPU then has nothing to do
# while the host prepares the next step, so its values are read this many steps at a time.
STEPS_PER_READ = 16


def steps_per_read(device: torch.device) -> int:
    """After how many steps their values are read: every step on a CPU, which never waits."""
    return 1 if device.type == "cpu" else STEPS_PER_READ


@dataclass(frozen=True)
class StepValues:
    """The loss terms of one optimizer step, still on the device."""

    phase: PhasePlan
    step: int  # within the plan
    names: tuple[str, ...]  # of the terms over features
    token_names: tuple[str, ...]  # of the terms over tokens, summed over the global batch
    values: Tensor  # (1 + n + m,): the sum of the n terms over features, these, the m over tokens

    @classmethod
    def of(
        cls, at: tuple[PhasePlan, int], total: Tensor, terms: Terms, tokens: Terms
    ) -> StepValues:
        """The values of the step `at` (phase, step); `total` is the sum of `terms`, ()."""
        stacked = torch.stack([total, *terms.values()]).detach()
        if tokens:
            stacked = torch.cat([stacked, torch.stack([*tokens.values()]).detach()])
        return cls(*at, tuple(terms), tuple(tokens), stacked)

    def not_finite(self) -> Tensor:
        """1.0 if a term is NaN or infinite, else 0.0; a float32 scalar on the device."""
        return (~self.values[1:].isfinite().all()).float()

    def named(self, values: Sequence[float]) -> dict[str, float]:
        """The loss terms by name, from the numbers that `values` has on the device.

        Raises Diverged if one is not finite.
        """
        total, count = values[0], len(self.names)
        terms = dict(zip(self.names, values[1 : 1 + count], strict=True))
        tokens = dict(zip(self.token_names, values[1 + count :], strict=True))
        self._refuse_non_finite(terms)
        self._refuse_non_finite(tokens)
        return {"loss": total + sum(tokens.values()), **terms, **tokens}

    def _refuse_non_finite(self, values: Mapping[str, float]) -> None:
        bad = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
        if bad:
            raise Diverged(f"{self.phase.place_of(self.step)}: {', '.join(bad)}")


def read_in_order(steps: Sequence[StepValues]) -> Iterator[dict[str, float]]:
    """The loss terms of each step by name, with their sum as `loss`; one transfer for all steps.

    Raises Diverged in the place of the first step with a term that is not finite.
    """
    values = torch.cat([one.values for one in steps]).tolist()
    first = 0
    for one in steps:
        last = first + len(one.values)
        yield one.named(values[first:last])
        first = last


class OptimizerStep:
    """Performs the optimizer steps of one phase; holds the optimizer and the fp16 loss scaler."""

    def __init__(self, run: TrainRun, optimizer: Optimizer, methods: Sequence[Method]) -> None:
        self.run = run
        self.optimizer = optimizer if run.lora is None else run.lora.optimizer(optimizer)
        # Set by the first step with a term that is not finite, and never reset. The host reads
        # values later; until then the optimizer changes nothing.
        self.halted = torch.zeros((), device=run.device)
        self.optimizer.halted = self.halted
        fp16 = run.settings.precision == "fp16" and run.position.plan.trains
        self.scaler = torch.amp.GradScaler(run.device.type, enabled=fp16)
        self._scale: float | None = None  # the loss scale after the last update; None: not read
        self._needs_stepped = any(type(one).after_step is not Method.after_step for one in methods)
        self.contexts = [(method, MethodRun(run, method.name)) for method in methods]
        self.share = LossShare(run, methods)
        self.reduction = GradientSum(run.weights, run.world)
        self.statistics = RunningStatistics(run.encoder.module)
        needs = [method.needs(first=run.first) for method in methods]
        pairs = zip(self.contexts, needs, strict=True)
        self.consolidating = [one for one, need in pairs if need.reference_gradient]
        self.inversion = next((need.pseudo_texts for need in needs if need.pseudo_texts), None)
        has_token_loss = any(type(method).token_loss is not Method.token_loss for method in methods)
        masks_words = run.position.plan.contrasts and run.settings.mask_share > 0
        has_loss = any(type(method).loss is not Method.loss for method in methods)
        self.differentiates = run.position.plan.contrasts or has_loss or has_token_loss
        self.fuses = run.encoder.family == "fusion" and (masks_words or has_token_loss)

    def __call__(self, batch: Batch) -> StepValues:
        """Train on one batch, or only compute gradients in a phase that does not train.

        Returns the loss terms. Reading them raises Diverged if one is not finite, as the first of
        these steps; from that step on no update changes the weights.
        """
        trains = self.run.position.plan.trains
        self.optimizer.zero_grad()
        if self.inversion is not None and batch.buffer_batch is not None:
            batch = with_pseudo_texts(self.run, batch, self.inversion)
        with torch.no_grad():
            for method, context in self.contexts:
                method.before_forward(context)
        if not self.differentiates:
            return self._measure(batch)
        values, aux, penalties = self._forward_backward(batch)
        self.halted.copy_(torch.maximum(self.halted, values.not_finite()))
        grads = self._gradients()
        with torch.no_grad():
            self._change(grads, penalties)
            stepped = self._update() if trains else False
            if trains:
                self.statistics.share(self.run.world)
            for (method, context), own in zip(self.contexts, aux, strict=True):
                method.after_step(context, batch, own, stepped=stepped)
        self.run.drop_inputs()
        return values

    def _measure(self, batch: Batch) -> StepValues:
        """A step of a phase without any loss: there is nothing to differentiate."""
        with torch.no_grad():
            for method, context in self.contexts:
                method.after_step(context, batch, {}, stepped=False)
        self.run.drop_inputs()
        position = (self.run.position.plan, self.run.position.step)
        return StepValues.of(position, torch.zeros((), device=self.run.device), {}, {})

    def _change(self, grads: dict[str, Tensor], penalties: list[Mapping[str, Tensor]]) -> None:
        """Let methods see, add to and replace gradients; a weight without one stays as it is."""
        for method, context in self.contexts:
            method.after_backward(context, grads)
        for method, context in self.contexts:
            method.add_gradients(context, grads)
        for penalty in penalties:
            add_(grads, penalty)
        given = set(grads)
        for method, context in self.contexts:
            method.replace_gradients(context, grads)
        for name in given - grads.keys():
            self.run.weights[name].grad = None

    def _forward_backward(
        self, batch: Batch
    ) -> tuple[StepValues, list[dict[str, Any]], list[Mapping[str, Tensor]]]:
        """The terms, values for `after_step`, and gradients of penalties, which are added later."""
        run = self.run
        chunks = run.chunks(batch)
        image, text, tokens = self._encode_all(batch, chunks)
        pseudo = pseudo_text_encoder(run, batch.pseudo)
        reference = reference_encoder(run, batch.reference, self.statistics)
        beside = reference.encode()
        sides = [image, text, *beside, *pseudo.encode()]
        # The loss is over the features of all processes. `detach` cuts the graph here: backward
        # stops at the leaves, and the encoder's part follows below.
        leaves = [run.world.gather(side.detach()).requires_grad_() for side in sides]
        first = 2 + len(beside)
        total, terms, aux = self._loss(batch, leaves[:2], leaves[2:first], *leaves[first:])
        self.scaler.scale(total).backward()
        # Also for weights that the loss uses directly, such as the temperature: see `has_weights`.
        if not self.share.has_weights:
            self.optimizer.zero_grad()
        # A loss may leave out a side of the reference, but none of the others.
        penalties, added = self._backward_reference(reference, leaves[2:first])
        own = [self.share.own_rows(_gradient(leaf)) for leaf in [*leaves[:2], *leaves[first:]]]
        pseudo.backward(own[2:])
        token_terms = TokenTerms(run, self.contexts, batch)
        for chunk in chunks:
            is_last = chunk is chunks[-1]
            # The first forward of several chunks kept no graph, so that memory holds the
            # activations of one chunk at a time; this one repeats it with its graph.
            if len(chunks) > 1:
                with self.statistics.kept():
                    image, text, tokens = self._encode(batch, chunk, fuses=self.fuses)
            grads = [rows[chunk] for rows in own[:2]]
            extra = None if tokens is None else token_terms.add_chunk(chunk, tokens)
            with self.reduction.last_backward(is_last=is_last):
                self._backward([image, text], grads, extra)
        position = (run.position.plan, run.position.step)
        total, *each = self.share.whole(torch.stack([total, *terms.values()])).unbind()
        terms = dict(zip(terms, each, strict=True)) | penalties
        for value in penalties.values():
            total = total + value
        return StepValues.of(position, total, terms, token_terms.values()), aux, added

    def _backward_reference(
        self, reference: BesideEncoder, leaves: Sequence[Tensor]
    ) -> tuple[Terms, list[Mapping[str, Tensor]]]:
        """Backpropagate from the features of the reference, before those of the batch.

        Returns the penalties that this gradient decides: their values, and their gradients.
        """
        own = [self._own(leaf) for leaf in leaves]
        terms: Terms = {}
        added: list[Mapping[str, Tensor]] = []
        if not self.consolidating:
            reference.backward(own)
            return terms, added
        grads = backward_apart(self.run, reference, own)
        if not grads:
            return terms, added
        with torch.no_grad():
            if self.scaler.is_enabled():
                scale = self.scaler.scale(torch.ones((), device=self.run.device))
                torch._foreach_div_([*grads.values()], scale)
            for method, context in self.consolidating:
                values, penalty = method.after_reference(context, grads)
                terms |= {f"{method.name}/{name}": value for name, value in values.items()}
                added.append(penalty)
        return terms, added

    def _encode_all(
        self, batch: Batch, chunks: list[slice]
    ) -> tuple[Tensor, Tensor, Tokens | None]:
        """This process's raw projections, (b, D) each; a single chunk keeps graph and tokens."""
        if len(chunks) == 1:
            return self._encode(batch, chunks[0], fuses=self.fuses)
        with torch.no_grad():
            each = self.statistics.averaged(chunks)
            parts = [self._encode(batch, chunk, fuses=False)[:2] for chunk in each]
        image, text = (torch.cat(side) for side in zip(*parts, strict=True))
        return image, text, None

    def _backward(
        self, outputs: list[Tensor], grads: list[Tensor], token_loss: Tensor | None
    ) -> None:
        """Backpropagate the leaves' gradients and the token terms through the encoder together."""
        # Both share the encoder's graph, which the first backward through it would free.
        if token_loss is not None:
            outputs = [*outputs, self.scaler.scale(token_loss)]
            grads = [*grads, torch.ones_like(token_loss)]
        # A number whose derivatives are `grads`: given gradients, torch.autograd.backward compares
        # shapes by means of sympy, which takes 0.7 CPU seconds to import.
        pairs = zip(outputs, grads, strict=True)
        torch.stack([(output * grad).sum().float() for output, grad in pairs]).sum().backward()

    def _encode(
        self, batch: Batch, chunk: slice, *, fuses: bool
    ) -> tuple[Tensor, Tensor, Tokens | None]:
        # Seeded by position, so that no random state needs saving for a resume. A chunk's second
        # forward draws the dropout masks of its first; otherwise the gradients would not belong to
        # the features of the loss. `first` counts in the global batch, so that a process draws
        # what a micro-batch at the same place draws.
        position = self.run.position
        first = self.run.world.slice_of(len(batch.keys)).start + chunk.start
        torch.manual_seed(torch_seed(self.run.seed, position.phase, position.step, first))
        if fuses:
            return self.run.encode_tokens(batch, chunk)
        return *self.run.encode(batch, chunk), None

    def _loss(
        self,
        batch: Batch,
        sides: Sequence[Tensor],
        reference: Sequence[Tensor],
        pseudo: Tensor | None = None,
    ) -> tuple[Tensor, Terms, list[dict[str, Any]]]:
        scale = self.run.scale(self.run.weights)
        image, text = sides
        out = self.share.features(as_features(image, text, scale, pseudo))
        if reference:
            image, text = reference
            out = replace(out, reference=self.share.features(as_features(image, text, scale)))
        terms: Terms = {}
        replaced = any(method.replaces_base for method, _ in self.contexts)
        if self.run.position.plan.contrasts and not replaced:
            of = (out.image, out.text, out.scale, out.own)
            sides = image_text(*of, groups_B=batch.groups, rows=self.run.row_loss)
            terms["contrastive"] = self.run.joined(*sides)
        all_aux = []
        for method, context in self.contexts:
            own, aux = method.loss(context, batch, out)
            terms |= {f"{method.name}/{name}": value for name, value in own.items()}
            all_aux.append(aux)
        terms = self.share.terms(terms)
        total = (
            torch.stack(list(terms.values())).sum()
            if len(terms) > 1
            else next(iter(terms.values()))
        )
        return total, terms, all_aux

    def _own(self, leaf: Tensor) -> Tensor | None:
        """The gradient of this process's rows; None if no loss uses them."""
        return None if leaf.grad is None else self.share.own_rows(leaf.grad)

    def _gradients(self) -> dict[str, Tensor]:
        """The gradients by name, unscaled and summed over processes."""
        grads = self.reduction.finish()
        # After the sum: an overflow anywhere is now seen everywhere, so all skip the same update.
        if grads:
            self.scaler.unscale_(cast("torch.optim.Optimizer", self.optimizer))
        return grads

    def _update(self) -> bool:
        if self.run.lora is not None:
            self.run.lora.pull_back()
        if self.run.settings.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.run.trained.values(), self.run.settings.clip_norm)
        reads_scale = self._needs_stepped and self.scaler.is_enabled()
        if reads_scale and self._scale is None:
            self._scale = self.scaler.get_scale()
        self.scaler.step(cast("torch.optim.Optimizer", self.optimizer))
        self.scaler.update()
        temperature = self.run.weights["logit_scale"]
        if temperature.requires_grad and self.run.lora is None:
            temperature.clamp_(max=self.run.row_loss.max_log_scale)
        if not reads_scale:
            return True
        # Lowered only if the update was skipped. Reading it waits for the device.
        before, self._scale = self._scale, self.scaler.get_scale()
        assert before is not None
        return self._scale >= before


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad
