"""Dual encoders: open_clip models built, loaded, saved and run.

Shapes: B samples, L tokens, D channels of the shared space.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack, final

from torch import Tensor, nn

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.files.tensors import write_tensors
from vlcpctl.models.base import BaseEncoder, Sides
from vlcpctl.models.configuration import (
    CONFIG_FILE,
    Changes,
    Configuration,
    find_configuration,
    preprocess_of,
    read_checkpoint_configuration,
    transform_of,
    with_changes,
)
from vlcpctl.models.execution import checkpoint_open_clip
from vlcpctl.models.pretrained import (
    find_pretrained,
    set_foreign,
    set_temperature,
    set_weights,
)
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.models.text_tower import TextTower, open_clip_tower
from vlcpctl.models.tokenizers import tokenizer_of
from vlcpctl.models.towers import (
    WithoutDraws,
    new_module,
    portable,
    refuse_uneven_heads,
    save_tower,
    without_downloads,
)

WEIGHTS_FILE = "open_clip_model.safetensors"
FOREIGN_WEIGHTS_FILES = ("open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")


@final
@dataclass
class DualEncoder(BaseEncoder):
    """An image and a text encoder with a shared space (open_clip); `config` is its `model_cfg`."""

    family: ClassVar[Literal["dual"]] = "dual"

    def checkpoint_gradients(self) -> None:
        """Recompute the activations of the layers in backward, instead of storing them."""
        checkpoint_open_clip(self.module)

    def _sides(self, images: Tensor | None, texts: Tensor | None) -> Sides:
        clip: Any = self.module
        image = None if images is None else clip.encode_image(images)
        text = None if texts is None else clip.encode_text(texts)
        return image, text

    @cached_property
    def text_tower(self) -> TextTower:
        """The text encoder's embedding table, and how the encoder finds the end of a text."""
        return open_clip_tower(self.module)


def build(
    model: str | Path,
    pretrained: str | None = None,
    *,
    temperature: str | None = None,
    seed: int = 0,
    **changes: Unpack[Changes],
) -> DualEncoder:
    """A new model by open_clip or packaged name, or from a JSON config file or a checkpoint.

    Its weights are those of the checkpoint or of `pretrained`, else random from the seed. Raises
    UsageError, BadInput or Incompatible if the model or its weights cannot be found or do not fit.
    """
    found = with_changes(find_configuration(str(model)), **changes)
    start = None
    if found.directory is not None:
        if pretrained:
            raise UsageError(
                f"--pretrained {pretrained} has no effect: {model} has its own weights"
            )
        start = weights_file(found.directory)
    elif pretrained:
        source = find_pretrained(str(model), pretrained)
        found = replace(found, preprocess={**source.preprocess, **found.preprocess})
        if source.quick_gelu:
            found = replace(found, model={**found.model, "quick_gelu": True})
        start = source.file
    ignored = ("logit_bias",) if changes.get("is_sigmoid") is False else ()
    fill = (
        None if start is None else partial(set_weights, file=start, resizes=True, ignored=ignored)
    )
    encoder = _encoder(found, fill, seed)
    if found.directory is None:  # a checkpoint was trained as it is
        refuse_uneven_heads(found.model["vision_cfg"])
    if temperature:
        set_temperature(encoder.weights()["logit_scale"], parse_temperature(temperature))
    return encoder


def load(directory: Path) -> DualEncoder:
    """The model in a checkpoint directory.

    Raises BadInput if its configuration cannot be read, Incompatible if its weights do not fit.
    """
    found = read_checkpoint_configuration(directory)
    fill = partial(set_weights, file=weights_file(directory), resizes=False)
    return _encoder(found, fill, seed=0, draws=False)


def with_weights(model: str, tensors: dict[str, Tensor], what: str) -> DualEncoder:
    """A model by name, JSON file or directory, with another program's weights.

    Raises Incompatible with all tensors that do not fit; `what` is their source, for messages.
    """
    fill = partial(set_foreign, tensors=tensors, what=what)
    return _encoder(find_configuration(model), fill, seed=0)


def save(encoder: DualEncoder, directory: Path) -> None:
    """Write config, weights and tokenizer files; open_clip loads them as local-dir:DIRECTORY."""
    config = {
        "model_cfg": portable(encoder.config),
        "preprocess_cfg": preprocess_of(encoder.transform),
        "learns_temperature": encoder.weights()["logit_scale"].requires_grad,
    }
    text = json.dumps(config, indent=1, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    encoder.tokenizer.save(directory)
    save_tower(encoder.module, directory)
    write_tensors(directory / WEIGHTS_FILE, encoder.module.state_dict())


def _encoder(
    found: Configuration,
    fill: Callable[[nn.Module], None] | None,
    seed: int,
    *,
    draws: bool = True,
) -> DualEncoder:
    """The model of a configuration; without `fill` its weights are random or downloaded.

    Without `draws`, no random weights are made: `fill` sets all.
    """
    tokenizer = tokenizer_of(found.model, found.directory)
    size = found.model["text_cfg"].get("vocab_size")
    if size is not None and tokenizer.size > size:
        raise Incompatible(
            f"the tokenizer has {tokenizer.size} tokens, but the model's vocabulary only {size}"
        )
    shape = found.model if fill is None else without_downloads(found.model, found.directory)
    with nullcontext() if draws else WithoutDraws():
        module = new_module(shape, seed)
    if fill is not None:
        fill(module)
    encoder = DualEncoder(module, found.model, transform_of(found), tokenizer)
    encoder.weights()["logit_scale"].requires_grad_(found.learns_temperature)
    return encoder


def weights_file(directory: Path) -> Path:
    """The weights file in a checkpoint directory, under one of open_clip's names.

    Raises Incompatible if there is none.
    """
    for name in (WEIGHTS_FILE, *FOREIGN_WEIGHTS_FILES):
        if (directory / name).is_file():
            return directory / name
    raise Incompatible(f"{directory} has a model configuration but no {WEIGHTS_FILE}")
