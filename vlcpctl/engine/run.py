"""The state of one train-step, and the view of it that each method gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from vlcpctl.core.features import as_features
from vlcpctl.core.method import Batch, Features, Method, Tokens, Weights
from vlcpctl.core.params import copy_of
from vlcpctl.engine.phases import PhasePlan
from vlcpctl.engine.settings import Settings
from vlcpctl.engine.world import World
from vlcpctl.models.dual_encoder import DualEncoder

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

    encoder: DualEncoder
    methods: Sequence[Method]
    settings: Settings
    seed: int
    device: torch.device
    previous: Weights | None = None  # parameters and buffers of the frozen previous model
    world: World = field(default_factory=World)
    slots: Slots = field(default_factory=dict)
    position: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        self._remembered: tuple[Batch, Features] | None = None
        self._kept_tokens: tuple[Batch, dict[int, Tokens]] | None = None

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
        """Exchange every parameter and buffer with those in the slot METHOD/SLOT."""
        method, slot = path.split("/")
        held = self.slots[method][slot]
        for name, tensor in self.everything().items():
            aside = tensor.clone()
            tensor.copy_(held[name])
            held[name].copy_(aside)

    @cached_property
    def width(self) -> int:
        """Channels of the shared space."""
        return int(self.encoder.config["embed_dim"])

    def scale(self, weights: Weights) -> Tensor:
        """1 / temperature."""
        return weights["logit_scale"].exp()

    def encode(
        self, batch: Batch, chunk: slice, weights: Weights | None = None
    ) -> tuple[Tensor, Tensor]:
        """Raw projections of a part of the local batch, in single precision at least."""
        images, texts = self.encoder.inputs(batch.images[chunk], batch.texts[chunk])
        with self._autocast():
            image, text = self.encoder.features(images, texts, weights)
        assert image is not None
        assert text is not None
        return _at_least_single(image), _at_least_single(text)

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
        with self._autocast():
            found = encoder.outputs(images, texts, fused, at, weights)
        tokens = Tokens(
            image=_at_least_single(found.image_tokens),
            text=_at_least_single(found.text_tokens),
            fused=_at_least_single(found.fused),
            logits=_at_least_single(found.logits),
            labels=labels,
        )
        return _at_least_single(found.image), _at_least_single(found.text), tokens

    def _autocast(self) -> torch.autocast:
        dtype = _AUTOCAST.get(self.settings.precision)
        if dtype is torch.float16 and not self.position.plan.trains:
            dtype = None  # an overflow would lose what a batch measures
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def chunks(self, batch: Batch) -> list[slice]:
        """The local batch cut into what is encoded at once."""
        local = len(batch.texts)
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
            tokens = any(method.needs(first=False).previous_tokens for method in self.methods)
            features = self.frozen_features(batch, self.previous_weights, tokens=tokens)
            self._remembered = (batch, features)
        return self._remembered[1]

    @property
    def previous_weights(self) -> Weights:
        """Parameters and buffers of the previous model."""
        assert self.previous is not None, "a method asked for a previous model; there is none"
        return self.previous


@dataclass(frozen=True)
class MethodRun:
    """A run as one method sees it: its own slots, and nothing of the engine."""

    run: TrainRun
    method: str

    @property
    def first(self) -> bool:
        """Whether there is no previous model."""
        return self.run.previous is None

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.run.seed

    @property
    def phase(self) -> str:
        """The current phase, as the method named it."""
        return self.run.position.plan.name.removeprefix(f"{self.method}/")

    @property
    def step(self) -> int:
        """The step of the current phase."""
        return self.run.position.plan.offset + self.run.position.step

    @property
    def steps(self) -> int:
        """How many steps the current phase has."""
        return self.run.position.plan.whole

    @property
    def weights(self) -> Weights:
        """The trained model's parameters, and its BatchNorm statistics if those are blended too."""
        return (
            self.run.everything_blended() if self.run.settings.blend_buffers else self.run.weights
        )

    @property
    def everything(self) -> Weights:
        """The trained model's parameters and buffers, live."""
        return self.run.everything()

    @property
    def anchor(self) -> Weights:
        """The previous model's tensors under the same names."""
        previous = self.run.previous_weights
        return {name: previous[name] for name in self.weights}

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return self.run.world.size

    @property
    def width(self) -> int:
        """Channels of the shared space."""
        return self.run.width

    def slot(self, name: str) -> Weights:
        """One of the method's own slots."""
        return self.run.slots[self.method][name]

    def previous(self, batch: Batch) -> Features:
        """The frozen previous model's view."""
        return self.run.previous_features(batch)

    def features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        """The model's view under other weights."""
        return self.run.frozen_features(batch, weights, tokens=tokens)


@dataclass(frozen=True)
class ChunkPart:
    """What is encoded at once of this process's pairs, as terms that are sums see it."""

    run: TrainRun
    batch: Batch
    chunk: slice
    masked: int

    @property
    def pairs(self) -> int:
        """The pairs of the global batch."""
        return len(self.batch.keys)

    def previous(self) -> Tokens:
        """The frozen previous model's tokens."""
        return self.run.frozen_tokens(self.batch, self.chunk, self.run.previous_weights)

    def under(self, weights: Weights) -> Tokens:
        """The model's tokens under other weights."""
        return self.run.frozen_tokens(self.batch, self.chunk, weights)


def start_slots(run: TrainRun, carried: Slots) -> None:
    """Give every method its slots: from the parent where they outlive tasks, else new."""
    for method in run.methods:
        view = MethodRun(run, method.name)
        run.slots[method.name] = {}
        for slot in method.slots(first=view.first):
            handed = (
                carried.get(method.name, {}).get(slot.name) if slot.lifetime == "stream" else None
            )
            values = copy_of(handed) if handed is not None else slot.start(view)
            run.slots[method.name][slot.name] = {
                name: value.to(run.device) for name, value in values.items()
            }


def _at_least_single(features: Tensor) -> Tensor:
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
