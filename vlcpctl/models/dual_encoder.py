"""Dual encoders: open_clip models built, loaded, saved and run.

Shapes: B samples, L tokens, D channels of the shared space.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Literal, final

from torch import Tensor, nn
from torch.func import functional_call

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.tensors import write_tensors
from vlcpctl.models.base import BaseEncoder
from vlcpctl.models.configuration import (
    CONFIG_FILE,
    Configuration,
    find_configuration,
    preprocess_of,
    read_checkpoint_configuration,
    view_of,
    with_shape,
)
from vlcpctl.models.pretrained import (
    find_pretrained,
    set_foreign,
    set_temperature,
    set_weights,
)
from vlcpctl.models.projections import Projections, evaluating
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.models.text_tower import TextTower, open_clip_tower
from vlcpctl.models.tokens import tokenizer_of
from vlcpctl.models.towers import new_module, portable, save_tower, without_downloads

WEIGHTS_FILE = "open_clip_model.safetensors"
FOREIGN_WEIGHTS_FILES = ("open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")


@final
@dataclass
class DualEncoder(BaseEncoder):
    """An image and a text encoder with a shared space; `config` is open_clip's `model_cfg`."""

    family: ClassVar[Literal["dual"]] = "dual"

    def _sides(
        self, images: Tensor | None, texts: Tensor | None, weights: Mapping[str, Tensor] | None
    ) -> tuple[Tensor | None, Tensor | None]:
        sides: tuple[Tensor | None, Tensor | None]
        if weights is None:
            sides = self._projections(images, texts)
            return sides
        named = {f"clip.{name}": tensor for name, tensor in weights.items()}
        with evaluating(self.module):
            sides = functional_call(self._projections, named, (images, texts))
        return sides

    @cached_property
    def text_tower(self) -> TextTower:
        """The embedding table of the text encoder, and where texts end."""
        return open_clip_tower(self.module)

    @cached_property
    def _projections(self) -> Projections:
        return Projections(self.module)


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
        start = weights_file(found.directory)
    elif pretrained:
        source = find_pretrained(str(model), pretrained)
        found = replace(found, preprocess={**source.preprocess, **found.preprocess})
        if source.quick_gelu:
            found = replace(found, model={**found.model, "quick_gelu": True})
        start = source.file
    fill = None if start is None else partial(set_weights, file=start, resizes=True)
    encoder = _encoder(found, fill, seed)
    if temperature:
        set_temperature(encoder.weights()["logit_scale"], parse_temperature(temperature))
    return encoder


def load(directory: Path) -> DualEncoder:
    """The model of a checkpoint directory; every tensor's name and shape is checked."""
    found = read_checkpoint_configuration(directory)
    fill = partial(set_weights, file=weights_file(directory), resizes=False)
    return _encoder(found, fill, seed=0)


def with_weights(model: str, tensors: dict[str, Tensor], what: str) -> DualEncoder:
    """A model of that name, file or directory with the weights that another program has trained."""
    fill = partial(set_foreign, tensors=tensors, what=what)
    return _encoder(find_configuration(model), fill, seed=0)


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


def _encoder(
    found: Configuration, fill: Callable[[nn.Module], None] | None, seed: int
) -> DualEncoder:
    """The model of a configuration; without `fill`, with weights drawn or downloaded."""
    tokenizer = tokenizer_of(found.model, found.directory)
    size = found.model["text_cfg"].get("vocab_size")
    if size is not None and tokenizer.size > size:
        raise Incompatible(
            f"the tokenizer has {tokenizer.size} tokens, the model's vocabulary {size}"
        )
    shape = found.model if fill is None else without_downloads(found.model, found.directory)
    module = new_module(shape, seed)
    if fill is not None:
        fill(module)
    encoder = DualEncoder(module, found.model, view_of(found), tokenizer)
    encoder.weights()["logit_scale"].requires_grad_(found.learns_temperature)
    return encoder


def weights_file(directory: Path) -> Path:
    """The weights beside a configuration, under one of the names that open_clip gives them."""
    for name in (WEIGHTS_FILE, *FOREIGN_WEIGHTS_FILES):
        if (directory / name).is_file():
            return directory / name
    raise Incompatible(f"{directory} has a model configuration and no {WEIGHTS_FILE}")
