"""Model configurations: from a JSON file, a checkpoint, this package, or open_clip."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import msgspec

from vlcpctl.core.errors import BadInput, Incompatible, UsageError, unknown_name
from vlcpctl.core.transform import ImageTransform
from vlcpctl.files.inputs import converted, read_json_object
from vlcpctl.models.fusion.configuration import CONFIG_FILE as FUSION_CONFIG_FILE
from vlcpctl.models.fusion.configuration import FusionConfig, read_fusion, refuse_huge
from vlcpctl.models.imports import open_clip

CONFIG_FILE = "open_clip_config.json"
PACKAGED = Path(__file__).parent / "configs"

_OF_SIGMOID = ("init_logit_bias", "init_logit_scale")
MOST_CONFIG_BYTES = 1 << 24


_Size = Annotated[int, msgspec.Meta(ge=1)]
_Colors = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class _Text:
    """What is read here of a text encoder's settings; building the model checks the others."""

    hf_tokenizer_name: str | None = None
    hf_model_name: str | None = None
    tokenizer_kwargs: dict[str, Any] | None = None
    context_length: _Size = 1
    vocab_size: _Size = 1


@dataclass(frozen=True, kw_only=True)
class _Model:
    """What is read here of an open_clip model configuration."""

    embed_dim: _Size
    vision_cfg: dict[str, Any]
    text_cfg: _Text
    quick_gelu: bool = False
    nonscalar_logit_scale: bool = False


@dataclass(frozen=True, kw_only=True)
class _Preprocess:
    """How images are prepared; None is open_clip's default."""

    mean: _Colors | None = None
    std: _Colors | None = None
    size: _Size | Annotated[list[_Size], msgspec.Meta(min_length=1)] = 1
    interpolation: Literal["bicubic", "bilinear"] | None = None
    resize_mode: Literal["shortest", "longest", "squash"] | None = None
    fill_color: int | None = None


@dataclass(frozen=True, kw_only=True)
class _File:
    """What is read here of a file, in which the architecture may also be beside the rest."""

    model_cfg: _Model
    preprocess_cfg: _Preprocess | None = None
    learns_temperature: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The architecture and the preparation of images, in open_clip's format."""

    model: dict[str, Any]
    preprocess: dict[str, Any] = field(default_factory=dict)
    directory: Path | None = None  # the checkpoint it was read from
    learns_temperature: bool = True


def find_configuration(model: str) -> Configuration:
    """The configuration of a model given as a path or by name.

    Raises UsageError for an unknown name, BadInput for a path that is not a model, Incompatible for
    a model of open_clip that is not one of images and texts, such as CLAP.
    """
    found = configuration_here(model)
    if found is not None:
        return found
    known = open_clip().get_model_config(model) if is_of_a_hub(model) else None
    if known is None and Path(model).is_dir():
        raise BadInput(f"{model} is not a checkpoint: it has no {CONFIG_FILE}")
    if known is None:
        names = [
            file.stem for place in (_open_clip_models(), PACKAGED) for file in place.glob("*.json")
        ]
        raise UsageError(unknown_name("model", model, names))
    return _of_open_clip(model, known)


def is_of_a_hub(model: str) -> bool:
    """Whether a model is named with a place that open_clip reads it from: hf-hub:NAME, for one."""
    return ":" in model and not is_path(model)


def _open_clip_models() -> Path:
    library = find_spec("open_clip")  # finds it without importing it, which takes seconds
    assert library is not None, "open_clip is not installed"
    return Path((library.submodule_search_locations or [""])[0]) / "model_configs"


def configuration_here(model: str) -> Configuration | None:
    """The configuration of a path, or of a name that this package or open_clip has; else None.

    None also for a fusion model. Does not import torch, so that a plan is printed at once. Raises
    BadInput if a file is not a model configuration, that of a fusion model included, and
    Incompatible for a model of open_clip that is not one of images and texts.
    """
    if fusion_configuration(model) is not None:
        return None
    path = Path(model)
    if (path / CONFIG_FILE).is_file():
        return read_checkpoint_configuration(path)
    if path.suffix == ".json":
        return _read(path)
    if (PACKAGED / f"{model}.json").is_file():
        return _read(PACKAGED / f"{model}.json")
    file = _open_clip_models() / f"{model}.json"
    is_name = file.name == f"{model}.json" and file.is_file()
    return _of_open_clip(model, read_json_object(file)) if is_name else None


def _of_open_clip(name: str, model: dict[str, Any]) -> Configuration:
    if "vision_cfg" not in model or "text_cfg" not in model:
        raise Incompatible(
            f"{name} is not a model of images and texts: its configuration has no "
            f"{'text_cfg' if 'vision_cfg' in model else 'vision_cfg'}"
        )
    return Configuration(model=model)


def is_path(model: str) -> bool:
    """Whether a model is given as a file or directory, whose configuration others may have made."""
    return Path(model).suffix == ".json" or Path(model).is_dir()


def is_missing_file(model: str) -> bool:
    """Whether a model is given as a JSON file that does not exist."""
    return Path(model).suffix == ".json" and not Path(model).is_file()


def fusion_configuration(model: str) -> FusionConfig | None:
    """The configuration of a checkpoint, JSON file or packaged name; None if not a fusion model."""
    path = Path(model)
    if (path / CONFIG_FILE).is_file():
        return None
    if path.is_dir():
        found = read_fusion(path / FUSION_CONFIG_FILE)
        return None if found is None else msgspec.structs.replace(found, directory=path)
    packaged = PACKAGED / f"{model}.json"
    return read_fusion(path if path.suffix == ".json" else packaged)


def read_checkpoint_configuration(directory: Path) -> Configuration:
    """The configuration in a checkpoint directory. Raises BadInput if it cannot be read."""
    found = _read(directory / CONFIG_FILE)
    return replace(found, directory=directory)


def with_shape(
    configuration: Configuration, text_length: int | None, image_size: int | None
) -> Configuration:
    """The configuration with another text length (tokens) or image size (pixels), where given."""
    text, vision, preprocess = {}, {}, {}
    if text_length is not None:
        text["context_length"] = text_length
    if image_size is not None:
        vision["image_size"] = preprocess["size"] = image_size
    changed = {
        **configuration.model,
        "text_cfg": {**configuration.model["text_cfg"], **text},
        "vision_cfg": {**configuration.model["vision_cfg"], **vision},
    }
    return replace(
        configuration, model=changed, preprocess={**configuration.preprocess, **preprocess}
    )


class Changes(TypedDict, total=False):
    """What a new model has instead of what its configuration says; None changes nothing."""

    text_length: int | None  # tokens
    image_size: int | None  # pixels
    is_sigmoid: bool | None  # whether it has a bias of the similarities, for a sigmoid loss
    batch_size: int  # the pairs of a batch, for which a bias is made where there was none


def with_changes(configuration: Configuration, **changes: Unpack[Changes]) -> Configuration:
    """The configuration with these changes."""
    shaped = with_shape(configuration, changes.get("text_length"), changes.get("image_size"))
    is_sigmoid = changes.get("is_sigmoid")
    if is_sigmoid in (None, has_logit_bias(shaped.model)):
        return shaped
    kept = {name: value for name, value in shaped.model.items() if name not in _OF_SIGMOID}
    start = sigmoid_start(changes["batch_size"]) if is_sigmoid else {}
    return replace(shaped, model={**kept, **start})


def has_logit_bias(model: Mapping[str, Any]) -> bool:
    """Whether a model, by its open_clip configuration, is made for a sigmoid loss (SigLIP)."""
    return model.get("init_logit_bias") is not None


def sigmoid_start(pairs: int) -> dict[str, float]:
    """The settings of a model for a sigmoid loss over batches of some pairs, in open_clip's format.

    The temperature is 0.1 as in Zhai et al. (2023), section 3.2, and the bias the logit of the
    share of true pairs, see open_clip #650: near their -10 for their batches of up to 32,768.

    >>> sigmoid_start(64)
    {'init_logit_bias': -4.143..., 'init_logit_scale': 2.302...}
    """
    return {"init_logit_bias": -math.log(pairs - 1), "init_logit_scale": math.log(10)}


def transform_of(configuration: Configuration) -> ImageTransform:
    """How images are prepared for the model, with open_clip's defaults for missing settings.

    Raises BadInput if the model takes images that are not square.
    """
    preprocess = dict(configuration.preprocess)
    if not {"mean", "std"} <= preprocess.keys():
        library = open_clip()
        usual = {"mean": library.OPENAI_DATASET_MEAN, "std": library.OPENAI_DATASET_STD}
        preprocess = {**usual, **preprocess}
    size = preprocess.get("size", configuration.model["vision_cfg"].get("image_size", 224))
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) != 1:
        raise BadInput(
            f"the model takes images of {size[0]} x {size[1]} pixels; they must be square"
        )
    return ImageTransform(
        image_size=sides.pop(),
        mean=tuple(preprocess["mean"]),
        std=tuple(preprocess["std"]),
        interpolation=preprocess.get("interpolation", "bicubic"),
        resize_mode=preprocess.get("resize_mode", "shortest"),
        fill_color=preprocess.get("fill_color", 0),
    )


def checkpoint_transform(directory: Path) -> ImageTransform:
    """How images are prepared for a checkpoint's model, without torch if vlcpctl wrote it."""
    fusion = fusion_configuration(str(directory))
    return (
        transform_of(read_checkpoint_configuration(directory))
        if fusion is None
        else fusion.transform
    )


def in_words(
    model: str, text_length: int | None = None, image_size: int | None = None
) -> str | None:
    """The family, image size (pixels) and text length (tokens) of a model by name or path.

    None where this is not known without a hub. Raises BadInput for a path that is not a model.

    >>> in_words("ViT-B-32")
    'dual encoder, 224 px, text 77'
    """
    fusion, dual = fusion_configuration(model), configuration_here(model)
    if fusion is not None:
        family, image, text = "fusion model", fusion.image_cfg.image_size, fusion.text_cfg
        length = text.context_length
    elif dual is not None:
        family, image = "dual encoder", dual.model["vision_cfg"].get("image_size", 224)
        length = dual.model["text_cfg"].get("context_length", 77)
    else:
        return None
    return f"{family}, {image_size or image} px, text {text_length or length}"


def activation_note(model: str) -> str | None:
    """Which activation weights from a file get: nothing in them says what they were trained with.

    None where the configuration does not decide it, as for a fusion model. Raises BadInput for a
    path that is not a model.

    >>> activation_note("ViT-B-32-quickgelu")
    'the weights get the activation of ViT-B-32-quickgelu, QuickGELU'
    """
    found = configuration_here(model)
    if found is None:
        return None
    name = "QuickGELU" if found.model.get("quick_gelu") else "GELU"
    said = f"the weights get the activation of {model}, {name}"
    quick = f"{model}-quickgelu"
    if is_path(model):
        quick = f'"quick_gelu": true in {model}'
    elif configuration_here(quick) is None:
        return said
    of_others = f"; those trained with QuickGELU, as OpenAI's, need {quick}"
    return said if name == "QuickGELU" else said + of_others


def shared_width(model: str) -> int | None:
    """D, the channels of the shared space, of a model given as a path or by name.

    None where it is not known without loading the model, as for the names of a hub. Raises BadInput
    for a path that is not a model.
    """
    fusion = fusion_configuration(model)
    if fusion is not None:
        return fusion.embed_dim
    dual = configuration_here(model)
    return None if dual is None else int(dual.model["embed_dim"])


def preprocess_of(transform: ImageTransform) -> dict[str, Any]:
    """The preprocessing settings in open_clip's format (`preprocess_cfg`)."""
    return {
        "size": transform.image_size,
        "mode": "RGB",
        "mean": list(transform.mean),
        "std": list(transform.std),
        "interpolation": transform.interpolation,
        "resize_mode": transform.resize_mode,
        "fill_color": transform.fill_color,
    }


def _read(path: Path) -> Configuration:
    """A model configuration, bare or inside `model_cfg` with `preprocess_cfg` beside it."""
    stored = read_json_object(path, most_bytes=MOST_CONFIG_BYTES)
    model = stored if stored.get("model_cfg") is None else stored["model_cfg"]
    found = converted({**stored, "model_cfg": model}, _File, path)
    refuse_huge(stored, str(path))
    names = ("hf_tokenizer_name", "hf_model_name")
    given = {name: getattr(found.model_cfg.text_cfg, name) for name in names}
    beside = {
        name: os.path.abspath(path.parent / value)
        for name, value in given.items()
        if value and (path.parent / value).is_dir()
    }
    return Configuration(
        model={**model, "text_cfg": {**model["text_cfg"], **beside}},
        preprocess=stored.get("preprocess_cfg") or {},
        learns_temperature=found.learns_temperature is not False,
    )
