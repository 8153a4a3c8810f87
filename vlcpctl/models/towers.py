"""Builds open_clip modules, and saves the config of a Hugging Face text tower with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from vlcpctl.core.errors import BadInput, Incompatible, UsageError, first_line
from vlcpctl.core.seeds import torch_seed
from vlcpctl.files.inputs import converted
from vlcpctl.models.hub import why_unavailable
from vlcpctl.models.imports import open_clip

# torch passes a mode the initialisations that may be replaced, and else what they call.
_DRAWS = {
    *(torch.Tensor.normal_, torch.Tensor.uniform_, init.normal_, init.uniform_),
    *(init.kaiming_uniform_, init.kaiming_normal_, init.trunc_normal_),
    *(init.xavier_uniform_, init.xavier_normal_),
}
TOWER = "text_tower"  # the directory for the config.json of a text tower of transformers


def new_module(config: dict[str, Any], seed: int) -> nn.Module:
    """An open_clip module with random weights from the seed.

    The state of torch's global generator does not change. Raises Incompatible for CoCa models and
    towers that cannot be downloaded, BadInput for a configuration that open_clip refuses, and
    UsageError for a text length beyond the tower's positions.
    """
    if "multimodal_cfg" in config:
        raise Incompatible("CoCa models are not supported: no method trains their caption decoder")
    library, text = open_clip(config), config["text_cfg"]
    separate = (
        config.get("custom_text")
        or text.get("hf_model_name")
        or text.get("text_arch") == "modern"  # of open_clip 4
    )
    kind = library.CustomTextCLIP if separate else library.CLIP
    shape = {name: value for name, value in config.items() if name != "custom_text"}
    _check_settings(shape)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, "init"))
        try:
            module: nn.Module = kind(**shape)
        except OSError as error:  # raised by the hub's clients
            raise Incompatible(_no_tower(config, error)) from error
        except Exception as error:  # another library's code on an untrusted configuration
            raise BadInput(
                f"open_clip cannot build a model from this configuration: {first_line(error)}"
            ) from error
    _check_built(module, config)
    return module


class WithoutDraws(TorchFunctionMode):
    """Within it, no random number is drawn: modules are built for weights that will all be read.

    Their parameters are what the memory held; buffers are as always.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """See `TorchFunctionMode`."""
        named = kwargs or {}
        if func in _DRAWS:
            return named["tensor"] if "tensor" in named else args[0]
        return (torch.empty if func is torch.randn else func)(*args, **named)


def _check_settings(shape: dict[str, Any]) -> None:
    """Raise BadInput for a setting that open_clip would take, but not as it is meant.

    It refuses unknown names and impossible sizes itself, but takes "no" for true, and builds a
    model whose images are smaller than a patch.
    """
    library, vision = open_clip(shape), shape["vision_cfg"]
    for part, kind in (("vision_cfg", library.CLIPVisionCfg), ("text_cfg", library.CLIPTextCfg)):
        # null stands for the default in configurations that open_clip ships.
        given = {name: value for name, value in shape[part].items() if value is not None}
        converted(given, kind, f"the model's {part}")
    image, patch = vision.get("image_size", 224), vision.get("patch_size") or 1
    if isinstance(image, int) and image < patch and not vision.get("timm_model_name"):
        raise BadInput(f"the model's vision_cfg: image_size is {image}, less than patch_size")


def refuse_uneven_heads(vision: dict[str, Any]) -> None:
    """Raise BadInput for heads that do not share the width: open_clip makes fewer, wider ones."""
    is_own = not vision.get("timm_model_name") and not isinstance(vision.get("layers"), list)
    width, head = vision.get("width", 768), vision.get("head_width", 64)
    if is_own and width % max(head, 1):
        raise BadInput(
            f"the model's vision_cfg: width is {width}, no multiple of head_width, {head}"
        )


def _check_built(module: nn.Module, config: dict[str, Any]) -> None:
    """Raise for sizes that a tower of timm or transformers is not made for, and would take.

    BadInput for an image size, UsageError for a text length beyond the positions.
    """
    vision, text, built = config["vision_cfg"], config["text_cfg"], cast("Any", module)
    trunk: Any = getattr(built.visual, "trunk", None)
    embed = getattr(trunk, "patch_embed", None)
    given = vision.get("image_size", 224)
    made_for: Any = getattr(embed, "img_size", None)
    # Convolutions without positions, as in ViTamin-XL, take any size.
    takes_any = hasattr(embed, "backbone") and getattr(trunk, "pos_embed", None) is None
    sides = given if isinstance(given, list | tuple) else (given, given)
    is_strict = made_for and getattr(embed, "strict_img_size", False) and not takes_any
    if is_strict and tuple(sides) != tuple(made_for):
        raise BadInput(
            f"the model's vision_cfg: image_size is {given}, but {vision['timm_model_name']} "
            f"takes images of {made_for[0]} pixels"
        )
    wanted = text.get("context_length", 77)
    longest = built.text.context_length if text.get("hf_model_name") else None
    if longest and wanted > longest:
        raise UsageError(
            f"--text-length {wanted}: the tower {text['hf_model_name']} has {longest} positions"
        )


def without_downloads(config: dict[str, Any], directory: Path | None) -> dict[str, Any]:
    """The configuration for a module whose weights will all be loaded.

    A text tower of transformers is built from its config in the checkpoint, if there is one, so
    that loading works offline.
    """
    vision = {**config["vision_cfg"], "timm_model_pretrained": False}
    text = {**config["text_cfg"], "hf_model_pretrained": False}
    if directory is not None and text.get("hf_model_name") and (directory / TOWER).is_dir():
        text["hf_model_name"] = str(directory / TOWER)
    return {**config, "vision_cfg": vision, "text_cfg": text}


def portable(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with local paths replaced by names; names on the hub stay."""
    text = dict(config["text_cfg"])
    tokenizer, tower = (Path(text.get(f"hf_{what}_name") or "") for what in ("tokenizer", "model"))
    if tokenizer.is_absolute():
        text["hf_tokenizer_name"] = tokenizer.name
    if tower.is_absolute():
        text["hf_model_name"] = TOWER
    return {**config, "text_cfg": text}


def save_tower(module: nn.Module, directory: Path) -> None:
    """Write the config of a text tower of transformers; does nothing for other towers."""
    config: Any = getattr(getattr(module, "text", None), "config", None)
    if config is not None:
        config.save_pretrained(directory / TOWER)


def _no_tower(config: dict[str, Any], error: OSError) -> str:
    names = [
        name
        for name in (
            config["text_cfg"].get("hf_model_name"),
            config["vision_cfg"].get("timm_model_name"),
        )
        if name
    ]
    tower = " or ".join(map(repr, names))
    return (
        f"cannot load the tower {tower} from the hub: {why_unavailable(error)}; "
        "fetch it elsewhere and give its directory as text_cfg.hf_model_name in a JSON --model, "
        'with "hf_model_pretrained" and "timm_model_pretrained" false if no weights are needed'
    )
