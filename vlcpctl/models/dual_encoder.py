"""Dual encoders: open_clip models built, loaded, saved and run.

Shapes: B samples, L tokens, D channels of the shared space.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, final, overload

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.tensors import write_tensors
from vlcpctl.core.view import View
from vlcpctl.models.configuration import (
    CONFIG_FILE,
    Configuration,
    find_configuration,
    preprocess_of,
    read_checkpoint_configuration,
    view_of,
    with_shape,
)
from vlcpctl.models.pretrained import find_pretrained, set_weights
from vlcpctl.models.projections import EmbeddedTexts, Projections, evaluating
from vlcpctl.models.temperature import Temperature, parse_temperature
from vlcpctl.models.text_tower import TextTower, text_tower_of
from vlcpctl.models.tokens import Tokenizer, tokenizer_of
from vlcpctl.models.towers import new_module, portable, save_tower, without_downloads

WEIGHTS_FILE = "open_clip_model.safetensors"
FOREIGN_WEIGHTS_FILES = ("open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")


@final
@dataclass
class DualEncoder:
    """An image and a text encoder with a shared space; `config` is open_clip's `model_cfg`."""

    family: ClassVar[Literal["dual", "fusion"]] = "dual"

    module: nn.Module
    config: dict[str, Any]
    view: View
    tokenizer: Tokenizer
    _held: Tensor = field(init=False, repr=False)  # mean and deviation, see _statistics

    def __post_init__(self) -> None:
        held = torch.tensor((self.view.mean, self.view.std), dtype=torch.float64)
        self._held = held.view(2, 1, 3, 1, 1)

    def tokenize(self, texts: list[str]) -> Tensor:
        """(n, L) token ids."""
        return self.tokenizer(texts)

    def inputs(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Images as `pixels` gives them, and texts, where the module is."""
        pixels = self.pixels(images)
        return pixels, texts.to(pixels.device)

    def pixels(self, images: Tensor) -> Tensor:
        """(B, H, W, 3) bytes as normalised (B, 3, H, W) floats, where the module is."""
        mean, std = self._statistics
        floats = images.to(mean.device).permute(0, 3, 1, 2).to(mean.dtype).div(255)
        return floats.sub_(mean).div_(std)

    @overload
    def features(
        self, images: Tensor, texts: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def features(
        self,
        images: Tensor | None,
        texts: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor | None, Tensor | None]: ...

    def features(
        self,
        images: Tensor | None,
        texts: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections (B, D) of both sides, or of the one that is given.

        With other `weights` the model runs in eval mode; buffers that they do not hold, such as
        BatchNorm's statistics, are its own.
        """
        sides: tuple[Tensor | None, Tensor | None]
        if weights is None:
            sides = self._projections(images, texts)
            return sides
        named = {f"clip.{name}": tensor for name, tensor in weights.items()}
        with evaluating(self.module):
            sides = functional_call(self._projections, named, (images, texts))
        return sides

    def embedded_texts(
        self, embeddings: Tensor, ends: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Raw projections (B, D) of texts given as token embeddings (B, L, W), ending at (B,).

        Those of embeddings that `text_tower.lookup` gives are those of the ids themselves.
        """
        text: Tensor
        if weights is None:
            text = self._embedded(embeddings, ends)
            return text
        named = {f"clip.{name}": tensor for name, tensor in weights.items()}
        with evaluating(self.module):
            text = functional_call(self._embedded, named, (embeddings, ends))
        return text

    @cached_property
    def text_tower(self) -> TextTower:
        """The embedding table of the text encoder, and where texts end."""
        return text_tower_of(self.module)

    def weights(self) -> dict[str, nn.Parameter]:
        """The module's parameters by name, live."""
        return dict(self.module.named_parameters())

    def buffers(self) -> dict[str, Tensor]:
        """The module's saved buffers by name, live."""
        saved = self.module.state_dict(keep_vars=True).keys()
        return {name: buffer for name, buffer in self.module.named_buffers() if name in saved}

    @cached_property
    def _projections(self) -> Projections:
        return Projections(self.module)

    @cached_property
    def _embedded(self) -> EmbeddedTexts:
        return EmbeddedTexts(self.module, self.text_tower)

    @property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the channels, where the module is."""
        like = next(self.module.parameters())
        if (self._held.device, self._held.dtype) != (like.device, like.dtype):
            self._held = self._held.to(like)
        return self._held[0], self._held[1]


def build(
    model: str | Path,
    pretrained: str | None = None,
    *,
    temperature: str | None = None,
    seed: int = 0,
    text_length: int | None = None,
    image_size: int | None = None,
) -> DualEncoder:
    """A model to start from, by an open_clip or packaged name, a JSON config file or a checkpoint.

    Its weights are those of the checkpoint or of `pretrained`, or drawn from the seed.
    """
    found = with_shape(find_configuration(str(model)), text_length, image_size)
    start = None
    if found.directory is not None:
        if pretrained:
            raise UsageError(f"--pretrained {pretrained}: {model} has weights of its own")
        start = _weights_file(found.directory)
    elif pretrained:
        source = find_pretrained(str(model), pretrained)
        found = replace(found, preprocess={**source.preprocess, **found.preprocess})
        if source.quick_gelu:
            found = replace(found, model={**found.model, "quick_gelu": True})
        start = source.file
    encoder = _encoder(found, start, seed, resizes=True)
    if temperature:
        _set_temperature(encoder.weights()["logit_scale"], parse_temperature(temperature))
    return encoder


def load(directory: Path) -> DualEncoder:
    """The model of a checkpoint directory; every tensor's name and shape is checked."""
    found = read_checkpoint_configuration(directory)
    return _encoder(found, _weights_file(directory), seed=0, resizes=False)


def save(encoder: DualEncoder, directory: Path) -> None:
    """Write config, weights and tokenizer files, which open_clip loads as local-dir:DIRECTORY."""
    config = {
        "model_cfg": portable(encoder.config),
        "preprocess_cfg": preprocess_of(encoder.view),
        "learns_temperature": encoder.weights()["logit_scale"].requires_grad,
    }
    text = json.dumps(config, indent=1, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    encoder.tokenizer.save(directory)
    save_tower(encoder.module, directory)
    write_tensors(directory / WEIGHTS_FILE, encoder.module.state_dict())


def _encoder(found: Configuration, start: Path | None, seed: int, *, resizes: bool) -> DualEncoder:
    tokenizer = tokenizer_of(found.model, found.directory)
    size = found.model["text_cfg"].get("vocab_size")
    if size is not None and tokenizer.size > size:
        raise Incompatible(
            f"the tokenizer has {tokenizer.size} tokens, the model's vocabulary {size}"
        )
    shape = found.model if start is None else without_downloads(found.model, found.directory)
    module = new_module(shape, seed)
    if start is not None:
        set_weights(module, start, resizes=resizes)
    encoder = DualEncoder(module, found.model, view_of(found), tokenizer)
    encoder.weights()["logit_scale"].requires_grad_(found.learns_temperature)
    return encoder


def _weights_file(directory: Path) -> Path:
    """The weights beside a configuration, under one of the names that open_clip gives them."""
    for name in (
        WEIGHTS_FILE,
        "open_clip_pytorch_model.safetensors",
        "open_clip_pytorch_model.bin",
    ):
        if (directory / name).is_file():
            return directory / name
    raise Incompatible(f"{directory} has a model configuration and no {WEIGHTS_FILE}")


@torch.no_grad()
def _set_temperature(log_scale: nn.Parameter, temperature: Temperature) -> None:
    log_scale.fill_(temperature.log_scale)
    log_scale.requires_grad_(temperature.learned)
