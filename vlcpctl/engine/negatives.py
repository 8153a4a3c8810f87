"""Pseudo texts in a training step: made of the memory, and encoded beside the pairs of the batch.

Each process makes and encodes its part of them, a micro-batch at a time.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.method import Batch
from vlcpctl.core.pseudo_texts import Inversion, PseudoTexts
from vlcpctl.core.seeds import torch_seed
from vlcpctl.engine.inversion import Inverter, draw_parents
from vlcpctl.engine.run import TrainRun


def with_pseudo_texts(run: TrainRun, batch: Batch, how: Inversion) -> Batch:
    """The batch with this process's part of the texts that the previous model makes."""
    started = time.monotonic()
    texts = _inverted(run, batch.memory, how)
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)  # else the time would be the next one's to wait
    run.inverting_seconds += time.monotonic() - started
    return replace(batch, pseudo=texts)


def _inverted(run: TrainRun, memory: Batch | None, how: Inversion) -> PseudoTexts:
    assert memory is not None, "a batch without a mini-batch of the memory"
    number = run.position.plan.start + run.position.step
    parents = draw_parents(run.seed, number, how.texts, len(memory.keys))
    parents = parents.part(run.world.slice_of(how.texts))
    inverter = Inverter(run.encoder, how, run.previous_weights)
    # Descent loses nothing in bf16; fp16 would need the gradients scaled.
    with run.autocast() if run.settings.precision == "bf16" else nullcontext():
        image_BD = _images(run, memory)
        ids_BL = run.world.gather(memory.texts.to(run.device))
        found = [
            inverter.invert(image_BD, ids_BL, parents.part(part)).texts
            for part in run.parts(len(parents.share))
        ]
    embeddings = torch.cat([texts.embeddings for texts in found])
    ends = torch.cat([texts.ends for texts in found])
    return PseudoTexts(embeddings, ends)


@torch.no_grad()
def _images(run: TrainRun, memory: Batch) -> Tensor:
    """(B, D) unit features of all images of a mini-batch, as the previous model has them."""
    parts = run.parts(len(memory.texts))
    found = [run.encode_image(memory, part, run.previous_weights) for part in parts]
    return normalize(run.world.gather(torch.cat(found)), dim=-1)


class PseudoSide:
    """The features of this process's pseudo texts, in parts; nothing where a batch has none."""

    def __init__(self, run: TrainRun, texts: PseudoTexts | None) -> None:
        self.run, self.texts = run, texts
        self._kept: Tensor | None = None

    def encode(self) -> list[Tensor]:
        """[] or [(k, D) raw projections]; of a single part the graph is kept."""
        if self.texts is None:
            return []
        parts = self.run.parts(len(self.texts.ends))
        if len(parts) == 1:
            self._kept = self._encode(self.texts, parts[0])
            return [self._kept]
        with torch.no_grad():
            return [torch.cat([self._encode(self.texts, part) for part in parts])]

    def backward(self, gradients: list[Tensor]) -> None:
        """Carry the gradients of all processes' features, if there are any, through the encoder."""
        if self.texts is None:
            return
        (whole,) = gradients
        own = whole[self.run.world.slice_of(len(whole))]
        for part in self.run.parts(len(own)):
            kept = self._encode(self.texts, part) if self._kept is None else self._kept
            torch.autograd.backward(kept, own[part])

    def _encode(self, texts: PseudoTexts, part: slice) -> Tensor:
        # As for pairs: a second forward draws what the first did, and so would a micro-batch.
        run = self.run
        first = run.world.rank * len(texts.ends) + part.start
        place = (run.position.phase, run.position.step, "pseudo", first)
        torch.manual_seed(torch_seed(run.seed, *place))
        return run.encode_pseudo(texts, part)
