"""Initial weights: those of an open_clip tag, or of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vlcpctl.core.errors import Incompatible, UsageError, unknown_name
from vlcpctl.files.tensors import require_fit, require_same_names
from vlcpctl.models.checkpoint_files import WEIGHT_SUFFIXES
from vlcpctl.models.hub import without_logs
from vlcpctl.models.imports import open_clip
from vlcpctl.models.temperature import Temperature
from vlcpctl.models.weight_files import read_weights

_TEXT_POSITIONS = ("positional_embedding", "text.positional_embedding")
_PREPARATION = ("mean", "std", "interpolation", "resize_mode")


@dataclass(frozen=True)
class Pretrained:
    """A file of weights, and the preprocessing and activation they were trained with."""

    file: Path
    preprocess: dict[str, Any] = field(default_factory=dict)
    quick_gelu: bool = False


def find_pretrained(model: str, pretrained: str, given: str = "") -> Pretrained:
    """The file given with `--pretrained`, or the downloaded file of an open_clip tag.

    `given` is what was given instead of --pretrained, as messages name it, without the weights.
    Raises UsageError if it is neither a file nor a tag, Incompatible if the download fails.
    """
    if is_weight_file(pretrained):
        return Pretrained(Path(pretrained))
    library = open_clip()
    known = library.list_pretrained_tags_by_model(model)
    if pretrained not in known:
        what = f"{given + pretrained if given else f'--pretrained {pretrained!r}'} is not a file"
        if not known:
            raise UsageError(f"{what}, and open_clip has no weights for the model {model}")
        raise UsageError(f"{what}; {unknown_name(f'tag of {model}', pretrained, known)}")
    tag = library.get_pretrained_cfg(model, pretrained)
    try:
        with without_logs():
            file = library.download_pretrained(tag)
    except (OSError, RuntimeError) as error:
        source = tag.get("hf_hub") or tag.get("url")
        raise Incompatible(
            f"cannot download the weights {pretrained!r} of {model} from {source}; "
            f"fetch the file elsewhere and pass {given or '--pretrained '}FILE.safetensors"
        ) from error
    preprocess = {name: tag[name] for name in _PREPARATION if name in tag}
    return Pretrained(Path(file), preprocess, quick_gelu=bool(tag.get("quick_gelu")))


def is_weight_file(pretrained: str) -> bool:
    """Whether pretrained weights are given as a file, rather than as a tag of open_clip."""
    return Path(pretrained).suffix in WEIGHT_SUFFIXES or Path(pretrained).is_file()


def set_weights(
    module: nn.Module, file: Path, *, resizes: bool, ignored: Sequence[str] = ()
) -> None:
    """Load the weights of a file into the module, without the `ignored` ones.

    With `resizes`, position embeddings of another length are interpolated, as open_clip does.
    Raises Incompatible if the file cannot be read, or a name or shape differs.
    """
    weights = _under_names_of(read_weights(file).tensors, module)
    weights = {name: value for name, value in weights.items() if name not in ignored}
    own = module.state_dict(keep_vars=True)
    if resizes:
        open_clip().model.resize_pos_embed(weights, module)
        if all(_same_width(weights, own, name) for name in _TEXT_POSITIONS):
            open_clip().model.resize_text_pos_embed(weights, module)
    require_same_names(weights, own, str(file))
    module.load_state_dict(weights)


def set_foreign(module: nn.Module, tensors: dict[str, Tensor], what: str) -> None:
    """Load another program's weights into the module.

    Raises Incompatible with all tensors that are missing, unexpected or of another shape.
    """
    weights = _under_names_of(tensors, module)
    require_fit(weights, module.state_dict(keep_vars=True), what)
    module.load_state_dict(weights)


@torch.no_grad()
def set_temperature(log_scale: nn.Parameter, temperature: Temperature) -> None:
    """Set the initial temperature, and whether it is learned."""
    log_scale.fill_(temperature.log_scale)
    log_scale.requires_grad_(temperature.learned)


def _under_names_of(weights: dict[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """The weights of old or foreign checkpoints under this module's tensor names."""
    own = module.state_dict(keep_vars=True)
    weights = open_clip().convert.convert_state_dict(module, weights)
    if "positional_embedding" in weights and "positional_embedding" not in own:
        weights = open_clip().model.convert_to_custom_text_state_dict(weights)
    for name in ("logit_scale", "logit_bias"):
        if name in weights and name in own and weights[name].numel() == 1:
            weights[name] = weights[name].reshape(own[name].shape)
    # A buffer of BERT that older versions of transformers saved and newer ones compute.
    return {name: value for name, value in weights.items() if not name.endswith("position_ids")}


def _same_width(weights: dict[str, Tensor], own: dict[str, Tensor], name: str) -> bool:
    return weights.get(name, torch.empty(0)).shape[1:] == own.get(name, torch.empty(0)).shape[1:]
