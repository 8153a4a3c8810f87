"""The state of one train-step: the model, the methods' memories, where it is, what it sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.features import as_features
from vlcpctl.core.method import Batch, Features, Method, Tokens, Weights
from vlcpctl.core.pseudo_texts import PseudoTexts
from vlcpctl.engine.phases import PhasePlan
from vlcpctl.engine.settings import Settings
from vlcpctl.engine.world import World
from vlcpctl.models.encoders import Encoder

Slots = dict[str, dict[str, Weights]]  # method, slot, name

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


UNPLANNED = PhasePlan("train", steps=0)


@dataclass
class Position:
    """How far a run has come."""

    phase: int = 0
    step: int = 0
    plan: PhasePlan = UNPLANNED


@dataclass
class TrainRun:
    """Everything a train-step holds while it runs."""

    encoder: Encoder
    methods: Sequence[Method]
    settings: Settings
    seed: int
    device: torch.device
    previous: Weights | None = None  # parameters and buffers of the frozen previous model
    anchored: Weights | None = None  # those that weights are held near, where others teach
    taught_scale: float | None = None  # 1 / temperature of a teacher whose features batches bring
    world: World = field(default_factory=World)
    slots: Slots = field(default_factory=dict)
    position: Position = field(default_factory=Position)
    inverting_seconds: float = 0.0  # spent on pseudo texts, summed over resumes

    def __post_init__(self) -> None:
        self._remembered: tuple[Batch, Features] | None = None
        self._kept_tokens: tuple[Batch, dict[int, Tokens]] | None = None

    @property
    def first(self) -> bool:
        """Whether there is no previous model, here or in what batches bring."""
        return self.previous is None and self.taught_scale is None

    @cached_property
    def weights(self) -> Weights:
        """The trained model's parameters, live."""
        return dict(self.encoder.weights())

    def everything(self) -> Weights:
        """The trained model's parameters and buffers, live."""
        return {**self.weights, **self.encoder.buffers()}

    def everything_blended(self) -> Weights:
        """Parameters and those buffers that an average makes sense of."""
        return {n: t for n, t in self.everything().items() if t.is_floating_point()}

    @torch.no_grad()
    def load(self, tensors: Weights) -> None:
        """Set every parameter and buffer."""
        for name, tensor in self.everything().items():
            tensor.copy_(tensors[name])

    @torch.no_grad()
    def swap(self, path: str) -> None:
        """Exchange the parameters and buffers that the slot METHOD/SLOT holds with those in it."""
        method, slot = path.split("/")
        live = self.everything()
        for name, held in self.slots[method][slot].items():
            aside = live[name].clone()
            live[name].copy_(held)
            held.copy_(aside)

    @property
    def kept(self) -> str:
        """The slot METHOD/SLOT that is the model to others; "" where it is what trains."""
        return next((f"{one.name}/{one.keeps}" for one in self.methods if one.keeps), "")

    @contextmanager
    def as_kept(self) -> Iterator[None]:
        """The model as it would be written now."""
        if self.kept:
            self.swap(self.kept)
        yield
        if self.kept:
            self.swap(self.kept)

    @torch.no_grad()
    def keep(self) -> None:
        """Make the slot that is the model to others the model."""
        method, slot = self.kept.split("/")
        for name, held in self.slots[method][slot].items():
            self.everything()[name].copy_(held)

    @cached_property
    def width(self) -> int:
        """Channels of the shared space."""
        return self.encoder.width

    def scale(self, weights: Weights) -> Tensor:
        """1 / temperature."""
        return weights["logit_scale"].exp()

    def joined(self, i2t: Tensor, t2i: Tensor) -> Tensor:
        """Both directions of a contrast: their mean, or their sum."""
        return i2t + t2i if self.settings.base_loss == "sum" else (i2t + t2i) / 2

    def encode(
        self, batch: Batch, chunk: slice, weights: Weights | None = None
    ) -> tuple[Tensor, Tensor]:
        """Raw projections of a part of the local batch, in single precision at least."""
        images, texts = self.encoder.inputs(batch.images[chunk], batch.texts[chunk])
        with self.autocast():
            image, text = self.encoder.features(images, texts, weights)
        assert image is not None
        assert text is not None
        return _at_least_single(image), _at_least_single(text)

    def encode_image(self, batch: Batch, chunk: slice, weights: Weights) -> Tensor:
        """The images' side of that alone, under other weights."""
        with self.autocast():
            pixels = self.encoder.pixels(batch.images[chunk])
            image, _ = self.encoder.features(pixels, None, weights)
        assert image is not None
        return _at_least_single(image)

    def encode_pseudo(
        self, texts: PseudoTexts, chunk: slice, weights: Weights | None = None
    ) -> Tensor:
        """Raw projections of some of the texts without image, in single precision at least."""
        with self.autocast():
            text = self.encoder.embedded_texts(texts.embeddings[chunk], texts.ends[chunk], weights)
        return _at_least_single(text)

    def encode_tokens(
        self, batch: Batch, chunk: slice, weights: Weights | None = None
    ) -> tuple[Tensor, Tensor, Tokens]:
        """The same, and what a fusion model says of the tokens of this part.

        Where the phase has no base loss, image and unmasked text are fused.
        """
        encoder = self.encoder
        assert encoder.family == "fusion", "tokens of a model that fuses nothing"
        images, texts = encoder.inputs(batch.images[chunk], batch.texts[chunk])
        fused, labels, at = texts, texts.new_empty(0), None
        if batch.masked is not None and batch.labels is not None and self.position.plan.contrasts:
            fused = batch.masked[chunk].to(texts.device)
            labels = batch.labels[chunk].to(texts.device)
            at = labels >= 0
            labels = labels[at]
        with self.autocast():
            found = encoder.outputs(images, texts, fused, at, weights)
        tokens = Tokens(
            image=_at_least_single(found.image_tokens),
            text=_at_least_single(found.text_tokens),
            fused=_at_least_single(found.fused),
            logits=_at_least_single(found.logits),
            labels=labels,
        )
        return _at_least_single(found.image), _at_least_single(found.text), tokens

    def autocast(self) -> torch.autocast:
        """The precision that the model runs in."""
        dtype = _AUTOCAST.get(self.settings.precision)
        if dtype is torch.float16 and not self.position.plan.trains:
            dtype = None  # an overflow would lose what a batch measures
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def chunks(self, batch: Batch) -> list[slice]:
        """The local batch cut into what is encoded at once."""
        return self.parts(len(batch.texts))

    def parts(self, local: int) -> list[slice]:
        """So many samples cut into what is encoded at once."""
        size = min(self.settings.micro_batch or local, local)
        return [slice(start, start + size) for start in range(0, local, size)]

    @torch.no_grad()
    def frozen_features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        """The whole batch under other weights, in eval mode.

        With `tokens` those are kept for `frozen_tokens`, unless the batch is encoded in parts: of a
        large batch they would fill the memory, and are made part by part.
        """
        chunks = self.chunks(batch)
        if tokens and self.encoder.family == "fusion" and len(chunks) == 1:
            image, text, found = self.encode_tokens(batch, chunks[0], weights)
            if self._kept_tokens is None or self._kept_tokens[0] is not batch:
                self._kept_tokens = (batch, {})
            self._kept_tokens[1][id(weights)] = found
        else:
            parts = [self.encode(batch, chunk, weights) for chunk in chunks]
            image, text = (torch.cat(side) for side in zip(*parts, strict=True))
        image, text = self.world.gather(image), self.world.gather(text)
        return as_features(image, text, self.scale(weights))

    @torch.no_grad()
    def frozen_tokens(self, batch: Batch, chunk: slice, weights: Weights) -> Tokens:
        """The tokens of a part of the local batch under other weights, in eval mode."""
        if self._kept_tokens is not None and self._kept_tokens[0] is batch:
            found = self._kept_tokens[1].get(id(weights))
            if found is not None:
                return found
        return self.encode_tokens(batch, chunk, weights)[2]

    def previous_features(self, batch: Batch) -> Features:
        """The frozen previous model's view, computed once per batch."""
        if self._remembered is None or self._remembered[0] is not batch:
            if batch.taught is not None:
                features = self._taught_features(*batch.taught)
            else:
                tokens = any(method.needs(first=False).previous_tokens for method in self.methods)
                features = self.frozen_features(batch, self.previous_weights, tokens=tokens)
            self._remembered = (batch, self._with_pseudo(features, batch.pseudo))
        return self._remembered[1]

    def _taught_features(self, image: Tensor, text: Tensor) -> Features:
        """What a teacher said of this process's pairs, and of the others'."""
        like = self.weights["logit_scale"]
        image, text = (self.world.gather(side.to(like)) for side in (image, text))
        return as_features(image, text, like.new_tensor(self.taught_scale))

    @torch.no_grad()
    def _with_pseudo(self, features: Features, texts: PseudoTexts | None) -> Features:
        """The previous model's features, with those of the texts without image."""
        if texts is None:
            return features
        parts = self.parts(len(texts.ends))
        found = torch.cat([self.encode_pseudo(texts, one, self.previous_weights) for one in parts])
        return replace(features, pseudo=normalize(self.world.gather(found), dim=-1))

    @property
    def anchor(self) -> Weights:
        """Parameters and buffers that the run starts from or, if there are none, the teacher's."""
        return self.previous_weights if self.anchored is None else self.anchored

    @property
    def previous_weights(self) -> Weights:
        """Parameters and buffers of the previous model."""
        assert self.previous is not None, "a method asked for a previous model; there is none"
        return self.previous


def _at_least_single(features: Tensor) -> Tensor:
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
