"""Weights to start from: an open_clip tag, or a file that somebody trained."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from vlcpctl.core.errors import Incompatible, UsageError, unknown_name
from vlcpctl.core.tensors import read_tensors
from vlcpctl.models.imports import open_clip


def pretrained_weights(
    model: str, pretrained: str, module: nn.Module
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights by name, and how their images were prepared."""
    path = Path(pretrained)
    if path.suffix in {".safetensors", ".pt", ".pth", ".bin"} or path.is_file():
        return _as_open_clip(_read(path), module), {}
    library = open_clip()
    known = library.list_pretrained_tags_by_model(model)
    if pretrained not in known:
        raise UsageError(unknown_name(f"pretrained tag of {model}:", pretrained, known))
    tag = library.get_pretrained_cfg(model, pretrained)
    try:
        file = library.download_pretrained(tag)
    except Exception as error:  # noqa: BLE001 - the hub's clients raise whatever they like
        raise Incompatible(
            f"the weights {pretrained!r} of {model} cannot be downloaded: {str(error).splitlines()[0]}; "
            "fetch the file elsewhere and pass --pretrained FILE.safetensors"
        ) from error
    return _as_open_clip(_read(Path(file)), module), {n: tag[n] for n in _PREPARATION if n in tag}


_PREPARATION = ("mean", "std", "interpolation", "resize_mode")


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, UnpicklingError, EOFError) as error:
        raise Incompatible(f"{path} cannot be read safely: {str(error).splitlines()[0]}") from error
    weights = found.get("state_dict", found)
    return {name.removeprefix("module."): value for name, value in weights.items()}


def _as_open_clip(weights: dict[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """The weights under the module's own names: with or without a text tower of its own."""
    if "positional_embedding" in weights and not hasattr(module, "positional_embedding"):
        weights = open_clip().model.convert_to_custom_text_state_dict(weights)
    scale = weights.get("logit_scale")
    if scale is not None:
        weights["logit_scale"] = scale.reshape(module.logit_scale.shape)  # type: ignore[arg-type]
    return {name: value for name, value in weights.items() if not name.endswith("position_ids")}
