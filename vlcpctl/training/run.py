"""One train-step in memory: the model, the methods' slots, the position, and encoding.

Shapes: B pairs in the global batch, b of them in a part that is encoded at once, H x W pixels,
D channels of the shared space, L tokens of a text, C channels of a token, N tokens of an image,
m masked tokens, V words of the vocabulary, K pseudo texts, k of them in a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.batch import Batch, Features, PseudoTexts, Tokens, Weights
from vlcpctl.core.devices import to_device
from vlcpctl.core.method import Method
from vlcpctl.distributed.world import World
from vlcpctl.losses.rows import Sigmoid, Softmax, row_loss
from vlcpctl.models.embed import as_features
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.execution import pixels_for_gradients
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.settings import Settings

if TYPE_CHECKING:
    from vlcpctl.training.adapters import Adapters

Slots = dict[str, dict[str, Weights]]  # method, slot, name

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


UNPLANNED = PhasePlan("train", steps=0)


@dataclass
class Position:
    """The phase and the optimizer step in it that a run has reached, both counted from 0."""

    phase: int = 0
    step: int = 0
    plan: PhasePlan = UNPLANNED


@dataclass(frozen=True)
class MaskedWords:
    """The words to predict in a forward pass, on the model's device."""

    ids: Tensor  # (b, L) token ids with words masked
    labels: Tensor  # (m,) the true ids of the masked words
    at: tuple[Tensor, Tensor]  # (m,) each: the row and the place of a masked word


@dataclass(frozen=True)
class Inputs:
    """The inputs of a forward pass over b pairs, on the model's device."""

    pixels: Tensor  # (b, 3, H, W), normalised
    texts: Tensor  # (b, L) token ids
    masked: MaskedWords | None = None


@dataclass
class TrainRun:
    """Everything a train-step holds in memory while it runs."""

    encoder: Encoder
    methods: Sequence[Method]
    settings: Settings
    seed: int
    device: torch.device
    previous: Weights | None = None  # parameters and buffers of the frozen previous model
    initial: Weights | None = None  # the initial weights, if `previous` is a separate teacher
    targets_scale: float | None = None  # 1 / temperature of the teacher of precomputed targets
    world: World = field(default_factory=World)
    lora: Adapters | None = None  # with --lora: what trains in place of the weights
    local_loss: bool = False  # each process computes the loss rows of its own pairs only
    slots: Slots = field(default_factory=dict)
    position: Position = field(default_factory=Position)
    inverting_seconds: float = 0.0  # spent on pseudo texts, summed over resumes

    def __post_init__(self) -> None:
        self._previous_features: list[tuple[Batch, Features]] = []
        self._kept_tokens: tuple[Batch, dict[int, Tokens]] | None = None
        self._kept_inputs: tuple[Tensor, Inputs] | None = None

    @property
    def first(self) -> bool:
        """Whether there is no previous model: neither its weights nor its precomputed targets."""
        return self.previous is None and self.targets_scale is None

    @cached_property
    def weights(self) -> Weights:
        """The trained model's parameters, live."""
        return dict(self.encoder.weights())

    @property
    def trained(self) -> Weights:
        """What the optimizer updates, live: the model's parameters, or their adapters."""
        return self.weights if self.lora is None else self.lora.tensors

    def saved(self) -> Weights:
        """What a saved state holds of the model, live: parameters, buffers and adapters."""
        return (
            self.everything() if self.lora is None else {**self.everything(), **self.lora.tensors}
        )

    def everything(self) -> Weights:
        """The trained model's parameters and buffers, live."""
        return {**self.weights, **self.encoder.buffers()}

    def floating_tensors(self) -> Weights:
        """Parameters and floating-point buffers: integer counters cannot be averaged."""
        return {n: t for n, t in self.everything().items() if t.is_floating_point()}

    @torch.no_grad()
    def load(self, tensors: Weights) -> None:
        """Set every parameter, buffer and adapter, in place: optimizers keep their references."""
        for name, tensor in self.saved().items():
            tensor.copy_(tensors[name])

    @torch.no_grad()
    def swap(self, path: str) -> None:
        """Exchange the model's parameters and buffers with those in the slot METHOD/SLOT."""
        method, slot = path.split("/")
        live = self.everything()
        for name, stored in self.slots[method][slot].items():
            current = live[name].clone()
            live[name].copy_(stored)
            stored.copy_(current)

    @property
    def written_slot(self) -> str:
        """The slot METHOD/SLOT that is validated and written as the model; "" if none is."""
        # A method may keep none in some tasks: it then declares no such slot.
        kept = [
            f"{one.name}/{one.keeps}" for one in self.methods if one.keeps in self.slots[one.name]
        ]
        return kept[0] if kept else ""

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Within the block, the model has the weights that would be written now."""
        if self.written_slot:
            self.swap(self.written_slot)
        yield
        if self.written_slot:
            self.swap(self.written_slot)

    @torch.no_grad()
    def load_written_slot(self) -> None:
        """Copy the slot that is written as the model into the model."""
        method, slot = self.written_slot.split("/")
        for name, value in self.slots[method][slot].items():
            self.everything()[name].copy_(value)

    @cached_property
    def width(self) -> int:
        """D, the channels of the shared space."""
        return self.encoder.width

    def scale(self, weights: Weights) -> Tensor:
        """1 / temperature of a model with these weights, a scalar tensor."""
        return weights["logit_scale"].exp()

    @cached_property
    def row_loss(self) -> Softmax | Sigmoid:
        """The base loss of rows of similarities; a sigmoid's bias is the live weight."""
        return row_loss(self.weights)

    def joined(self, i2t: Tensor, t2i: Tensor) -> Tensor:
        """The losses of both directions, () each, as one: mean or sum, by `--base-loss`."""
        return i2t + t2i if self.settings.base_loss == "sum" else (i2t + t2i) / 2

    def encode(
        self, batch: Batch, chunk: slice, weights: Weights | None = None
    ) -> tuple[Tensor, Tensor]:
        """Raw projections (b, D) of the images and of the texts of `chunk`, float32 or wider.

        `chunk` selects from this process's part of the batch; `weights` replace the model's own,
        in eval mode.
        """
        inputs = self._inputs(batch, chunk)
        with self.autocast():
            image, text = self.encoder.features(inputs.pixels, inputs.texts, weights)
        assert image is not None
        assert text is not None
        return _at_least_single(image), _at_least_single(text)

    def encode_image(self, batch: Batch, chunk: slice, weights: Weights) -> Tensor:
        """Raw projections (b, D) of the images of `chunk` under other weights, float32 or wider."""
        with self.autocast():
            pixels = self.encoder.pixels(batch.images[chunk])
            image, _ = self.encoder.features(pixels, None, weights)
        assert image is not None
        return _at_least_single(image)

    def encode_pseudo(
        self, texts: PseudoTexts, chunk: slice, weights: Weights | None = None
    ) -> Tensor:
        """Raw projections (k, D) of the pseudo texts of `chunk`, float32 or wider."""
        with self.autocast():
            embeddings = _at_least_single(texts.embeddings[chunk])  # those of files may be halves
            text = self.encoder.embedded_texts(embeddings, texts.ends[chunk], weights)
        return _at_least_single(text)

    def encode_tokens(
        self, batch: Batch, chunk: slice, weights: Weights | None = None
    ) -> tuple[Tensor, Tensor, Tokens]:
        """What `encode` returns, and a fusion model's token outputs for the same pairs.

        The tokens are (b, N, C) of images, (b, L, C) of texts, (b, C) fused, and logits (m, V) of
        the masked words. In a phase without base loss nothing is masked: image and text as they
        are get fused, and m is 0.
        """
        encoder = self.encoder
        assert encoder.family == "fusion", "only a fusion model has token outputs"
        inputs = self._inputs(batch, chunk)
        masked = inputs.masked if self.position.plan.contrasts else None
        fused, at = inputs.texts, None
        labels = inputs.texts.new_empty(0)
        if masked is not None:
            fused, at, labels = masked.ids, masked.at, masked.labels
        with self.autocast():
            outputs = encoder.outputs(inputs.pixels, inputs.texts, fused, at, weights)
        tokens = Tokens(
            image=_at_least_single(outputs.image_tokens),
            text=_at_least_single(outputs.text_tokens),
            fused=_at_least_single(outputs.fused),
            logits=_at_least_single(outputs.logits),
            labels=labels,
        )
        return _at_least_single(outputs.image), _at_least_single(outputs.text), tokens

    def _inputs(self, batch: Batch, chunk: slice) -> Inputs:
        """The inputs of the passes over `chunk`; those of a whole batch are kept for all passes."""
        if len(self.chunks(batch)) > 1:
            return self._new_inputs(batch, chunk)
        # Images identify the batch: pseudo texts are added to a copy of it.
        if self._kept_inputs is None or self._kept_inputs[0] is not batch.images:
            self.drop_inputs()  # first, so that memory holds the pixels of one batch
            self._kept_inputs = (batch.images, self._new_inputs(batch, chunk))
        return self._kept_inputs[1]

    # A pass in inference mode may be the first, and autograd refuses tensors made there.
    @torch.inference_mode(mode=False)
    def _new_inputs(self, batch: Batch, chunk: slice) -> Inputs:
        pixels, texts = self.encoder.inputs(batch.images[chunk], batch.texts[chunk])
        pixels = pixels_for_gradients(self.encoder.module, pixels)
        if batch.masked is None or batch.labels is None:
            return Inputs(pixels, texts)
        labels = batch.labels[chunk]
        rows, places = (labels >= 0).nonzero(as_tuple=True)
        ids, labels, rows, places = (
            to_device(one, pixels.device)
            for one in (batch.masked[chunk], labels[rows, places], rows, places)
        )
        return Inputs(pixels, texts, MaskedWords(ids, labels, (rows, places)))

    def drop_inputs(self) -> None:
        """Free the inputs of the batch, after its last pass."""
        self._kept_inputs = None

    def autocast(self) -> torch.autocast:
        """The context that sets the precision of the model's forward pass."""
        dtype = _AUTOCAST.get(self.settings.precision)
        if dtype is torch.float16 and not self.position.plan.trains:
            # Measuring phases have no loss scaler that could repeat an overflowing batch: its
            # gradients would be lost.
            dtype = None
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def chunks(self, batch: Batch) -> list[slice]:
        """This process's part of the batch, cut into slices that are encoded at once."""
        return self.parts(len(batch.texts))

    def parts(self, local: int) -> list[slice]:
        """`local` samples cut into slices of a micro-batch, of which no rest is a single sample."""
        size = min(self.settings.micro_batch or local, local)
        starts = [*range(0, local, size)]
        if size > 1 and local % size == 1:  # batch norms cannot normalise over a single image
            last = starts.pop()
            starts += [last - 1] if size > 2 else []
        return [slice(*ends) for ends in pairwise([*starts, local])]

    def frozen_features(self, batch: Batch, weights: Weights, *, tokens: bool = False) -> Features:
        """The features of the global batch, (B, D) each, under other weights in eval mode.

        With `tokens`, token outputs are kept for `frozen_tokens`, so that it needs no second
        forward. A batch that is encoded in parts keeps none: all its tokens would fill the memory.
        """
        # Gradients of a loss may need these features, and autograd refuses tensors that were made
        # in inference mode: copies are returned.
        image, text = (
            self.world.gather(side.clone())
            for side in self._frozen_projections(batch, weights, tokens=tokens)
        )
        with torch.no_grad():
            return as_features(image, text, self.scale(weights))

    @torch.inference_mode()
    def _frozen_projections(
        self, batch: Batch, weights: Weights, *, tokens: bool
    ) -> tuple[Tensor, Tensor]:
        chunks = self.chunks(batch)
        if tokens and self.encoder.family == "fusion" and len(chunks) == 1:
            image, text, token_outputs = self.encode_tokens(batch, chunks[0], weights)
            if self._kept_tokens is None or self._kept_tokens[0] is not batch:
                self._kept_tokens = (batch, {})
            self._kept_tokens[1][id(weights)] = token_outputs
        else:
            parts = [self.encode(batch, chunk, weights) for chunk in chunks]
            image, text = (torch.cat(side) for side in zip(*parts, strict=True))
        return image, text

    @torch.inference_mode()
    def frozen_tokens(self, batch: Batch, chunk: slice, weights: Weights) -> Tokens:
        """The token outputs of `chunk` under other weights in eval mode, without gradient.

        They were made in inference mode. What is computed from them alone is an ordinary tensor; a
        loss whose gradient needs one of them itself must clone it.
        """
        if self._kept_tokens is not None and self._kept_tokens[0] is batch:
            found = self._kept_tokens[1].get(id(weights))
            if found is not None:
                return found
        return self.encode_tokens(batch, chunk, weights)[2]

    def previous_features(self, batch: Batch) -> Features:
        """The frozen previous model's features of the batch, (B, D) each; computed once per batch.

        They come from precomputed targets if the batch has them.
        """
        for known, features in self._previous_features:
            if known is batch:
                return features
        if batch.targets is not None:
            features = self._features_of_targets(*batch.targets)
        else:
            tokens = any(method.needs(first=False).previous_tokens for method in self.methods)
            features = self.frozen_features(batch, self.previous_weights, tokens=tokens)
        features = self._with_pseudo(features, batch.pseudo)
        # Two are kept: methods may ask for the batch and its reference in turn.
        self._previous_features = [*self._previous_features[-1:], (batch, features)]
        return features

    def _features_of_targets(self, image: Tensor, text: Tensor) -> Features:
        """Precomputed teacher embeddings, (b, D) each, gathered from all processes."""
        assert self.targets_scale is not None
        like = self.weights["logit_scale"]
        image, text = (self.world.gather(side.to(like)) for side in (image, text))
        return as_features(image, text, like.new_full((), self.targets_scale))

    @torch.no_grad()
    def _with_pseudo(self, features: Features, texts: PseudoTexts | None) -> Features:
        """The previous model's features, with those of the pseudo texts (K, D) if there are any."""
        if texts is None:
            return features
        parts = self.parts(len(texts.ends))
        with torch.inference_mode():
            projections = torch.cat(
                [self.encode_pseudo(texts, one, self.previous_weights) for one in parts]
            )
        return replace(features, pseudo=normalize(self.world.gather(projections.clone()), dim=-1))

    @property
    def anchor(self) -> Weights:
        """The frozen weights that penalties pull towards: the initial ones, else the teacher's."""
        return self.previous_weights if self.initial is None else self.initial

    @property
    def previous_weights(self) -> Weights:
        """The parameters and buffers of the frozen previous model, or of --teacher."""
        assert self.previous is not None, "a method needs a previous model, but there is none"
        return self.previous


def _at_least_single(features: Tensor) -> Tensor:
    # Losses exponentiate and sum over the batch, which half precision cannot hold; float64, as
    # tests use it, stays.
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
