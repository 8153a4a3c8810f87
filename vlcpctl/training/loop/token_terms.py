"""The loss terms over tokens of one optimizer step: masked words, and the methods' own terms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vlcpctl.core.batch import Batch, Terms, Tokens
from vlcpctl.core.devices import to_device
from vlcpctl.core.method import Method
from vlcpctl.losses.masked import word_loss
from vlcpctl.training.loop.method_context import ChunkPart, MethodRun
from vlcpctl.training.loop.train_run import TrainRun


class TokenTerms:
    """Loss terms that are sums over a chunk's own tokens.

    Each is divided by a count of the global batch, so that chunks and processes simply add up.
    """

    def __init__(
        self, run: TrainRun, contexts: Sequence[tuple[Method, MethodRun]], batch: Batch
    ) -> None:
        self.run, self.contexts, self.batch = run, contexts, batch
        self._predicts_words = run.position.plan.contrasts and run.settings.mask_share > 0
        self._masked: int | Tensor | None = None
        self._chunk_terms: list[Terms] = []

    def add_chunk(self, chunk: slice, tokens: Tokens) -> Tensor | None:
        """The sum of a chunk's terms that have a gradient, a scalar; None if none has."""
        part = ChunkPart(self.run, self.batch, chunk, self._count())
        terms: Terms = {}
        if self._predicts_words:
            terms["mlm"] = word_loss(tokens.logits, tokens.labels) / part.masked
        for method, context in self.contexts:
            own = method.token_loss(context, part, tokens)
            terms |= {f"{method.name}/{name}": value for name, value in own.items()}
        self._chunk_terms.append(terms)
        differentiable = [value for value in terms.values() if value.requires_grad]
        return torch.stack(differentiable).sum() if differentiable else None

    def values(self) -> Terms:
        """The value of each term by name, summed over chunks and processes; () each."""
        if not self._chunk_terms or not self._chunk_terms[0]:
            return {}
        stacks = [
            torch.stack([each.detach() for each in terms.values()]) for terms in self._chunk_terms
        ]
        summed = torch.stack(stacks).sum(0)
        self.run.world.sum_([summed])
        return dict(zip(self._chunk_terms[0], summed.unbind(), strict=True))

    def _count(self) -> int | Tensor:
        """The number of masked tokens in the global batch, at least 1."""
        # Not the chunk's own count: a mean of means would weigh tokens by how their chunk was cut.
        if self._masked is None:
            labels = self.batch.labels  # on the CPU, so that counting them does not wait for a GPU
            count = 0 if labels is None else int((labels >= 0).sum())
            if self.run.world.size == 1:
                self._masked = max(1, count)
            else:
                summed = to_device(torch.tensor(count), self.run.device)
                self.run.world.sum_([summed])
                self._masked = summed.clamp_min(1)
        return self._masked
