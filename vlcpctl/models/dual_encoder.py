"""Dual encoders: open_clip models built, loaded, saved and run, their checkpoints readable by open_clip itself.

Shapes: B samples, L tokens, D channels of the shared space.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vlcpctl.core.errors import Incompatible
from vlcpctl.core.seeds import torch_seed
from vlcpctl.core.tensors import read_tensors, require_same_names, write_tensors
from vlcpctl.core.view import View
from vlcpctl.models.configuration import find_config, preprocess_of, view_of, with_shape
from vlcpctl.models.imports import open_clip
from vlcpctl.models.pretrained import pretrained_weights
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.models.tokens import Tokenizer, tokenizer_of

CONFIG_FILE = "open_clip_config.json"
WEIGHTS_FILE = "open_clip_model.safetensors"


class _Projections(nn.Module):
    """Runs both encoders as one module, so that functional_call can give it other weights."""

    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.clip = clip

    def forward(
        self, images: Tensor | None, texts: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        clip: Any = self.clip
        image = None if images is None else clip.encode_image(images)
        text = None if texts is None else clip.encode_text(texts)
        return image, text


@final
@dataclass
class DualEncoder:
    """An image and a text encoder with a shared space; `config` and `view` as open_clip has them."""

    module: nn.Module
    config: dict[str, Any]
    view: View
    tokenizer: Tokenizer

    def tokenize(self, texts: list[str]) -> Tensor:
        """(n, L) token ids."""
        return self.tokenizer(texts)

    def pixels(self, images: Tensor) -> Tensor:
        """(B, H, W, 3) bytes as normalised (B, 3, H, W) floats on the module's device."""
        like = next(self.module.parameters())
        scaled = images.to(like.device).permute(0, 3, 1, 2).to(like.dtype).div(255)
        mean, std = (scaled.new_tensor(v).view(1, 3, 1, 1) for v in (self.view.mean, self.view.std))
        return (scaled - mean) / std

    def inputs(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """The pixels of a batch and its token ids, on the module's device."""
        pixels = self.pixels(images)
        return pixels, texts.to(pixels.device)

    def features(
        self,
        images: Tensor | None,
        texts: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections (B, D) of both sides.

        With other `weights` the model runs in eval mode; buffers that they do not hold, such as
        BatchNorm's statistics, are its own.
        """
        if weights is None:
            sides: tuple[Tensor | None, Tensor | None] = self._projections(images, texts)
            return sides
        named = {f"clip.{name}": tensor for name, tensor in weights.items()}
        with _evaluating(self._projections):
            sides = functional_call(self._projections, named, (images, texts))
        return sides

    def weights(self) -> dict[str, nn.Parameter]:
        """The module's parameters by name, live."""
        return dict(self.module.named_parameters())

    def buffers(self) -> dict[str, Tensor]:
        """The module's saved buffers by name, live."""
        saved = self.module.state_dict(keep_vars=True).keys()
        return {name: buffer for name, buffer in self.module.named_buffers() if name in saved}

    @cached_property
    def _projections(self) -> _Projections:
        return _Projections(self.module)


def build(
    model: str,
    pretrained: str | None = None,
    *,
    temperature: str | None = None,
    seed: int = 0,
    text_length: int | None = None,
    image_size: int | None = None,
) -> DualEncoder:
    """A new model: an open_clip name, a packaged name such as `tiny`, or a JSON config file."""
    config = with_shape(find_config(model), text_length, image_size)
    encoder = _encoder(config, {}, None, seed)
    if pretrained:
        weights, preprocess = pretrained_weights(model, pretrained, encoder.module)
        _set_weights(encoder.module, weights, f"pretrained {pretrained}")
        encoder.view = view_of(config, {**preprocess, "size": encoder.view.image_size})
    if temperature:
        parsed = parse_temperature(temperature)
        with torch.no_grad():
            encoder.weights()["logit_scale"].fill_(parsed.log_scale)
        encoder.weights()["logit_scale"].requires_grad_(parsed.learned)
    return encoder


def load(directory: Path) -> DualEncoder:
    """The model of a checkpoint directory; every tensor's name and shape is checked."""
    path = directory / CONFIG_FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        config = stored["model_cfg"]
    except (OSError, ValueError, KeyError) as error:
        raise Incompatible(f"{path} is no open_clip configuration: {error}") from error
    encoder = _encoder(_without_downloads(config), stored.get("preprocess_cfg", {}), directory, seed=0)
    weights = directory / WEIGHTS_FILE
    _set_weights(encoder.module, read_tensors(weights), str(weights))
    encoder.weights()["logit_scale"].requires_grad_(stored.get("learns_temperature", True))
    return encoder


def save(encoder: DualEncoder, directory: Path) -> None:
    """Write config, weights and tokenizer files, which open_clip loads as local-dir:DIRECTORY."""
    config = {
        "model_cfg": _portable(encoder.config),
        "preprocess_cfg": preprocess_of(encoder.view),
        "learns_temperature": encoder.weights()["logit_scale"].requires_grad,
    }
    (directory / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    encoder.tokenizer.save(directory)
    write_tensors(directory / WEIGHTS_FILE, encoder.module.state_dict())


def _encoder(
    config: dict[str, Any], preprocess: dict[str, Any], directory: Path | None, seed: int
) -> DualEncoder:
    library = open_clip(config)
    text = config["text_cfg"]
    separate = config.get("custom_text") or text.get("hf_model_name")
    if "multimodal_cfg" in config:
        raise Incompatible("CoCa models have a caption decoder, which no method here trains")
    kind = library.CustomTextCLIP if separate else library.CLIP
    shape = {name: value for name, value in config.items() if name != "custom_text"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "init"))
        module: nn.Module = kind(**shape)
    return DualEncoder(module, config, view_of(config, preprocess), tokenizer_of(config, directory))


def _set_weights(module: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    require_same_names(weights, module.state_dict(), source)
    module.load_state_dict(weights)


def _without_downloads(config: dict[str, Any]) -> dict[str, Any]:
    """The towers' own pretrained weights are not wanted: the checkpoint has all of them."""
    vision = {**config["vision_cfg"], "timm_model_pretrained": False}
    text = {**config["text_cfg"], "hf_model_pretrained": False}
    return {**config, "vision_cfg": vision, "text_cfg": text}


def _portable(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without a path of this machine."""
    text = dict(config["text_cfg"])
    name = text.get("hf_tokenizer_name")
    if name and Path(name).is_dir():
        text["hf_tokenizer_name"] = Path(name).name
    return {**config, "text_cfg": text}


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    if not module.training:
        yield
        return
    module.eval()
    try:
        yield
    finally:
        module.train()
