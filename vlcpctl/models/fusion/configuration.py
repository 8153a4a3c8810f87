"""The configuration of a fusion model, from a JSON file or a checkpoint. Imports no torch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.transform import INTERPOLATIONS, RESIZE_MODES, ImageTransform
from vlcpctl.files.inputs import converted, read_json

FAMILY = "fusion"
CONFIG_FILE = "config.json"

HEADS = ("linear", "cosine")
CLEAN = ("none", "ctp", "whitespace", "lower", "canonicalize")  # the last three are open_clip's

# Statistics of CLIP's training images, which the CTP authors use too.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

Size = Annotated[int, msgspec.Meta(ge=1)]
Number = int | float  # of a JSON file: a whole number stays one
Colors = tuple[Number, Number, Number]

# What to do if the hub is out of reach.
ELSEWHERE = (
    "download it elsewhere and pass local files: --pretrained image=FILE,text=DIR; "
    "or train a small model with --preset tiny --model albef-tiny"
)


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """A vision transformer of timm; sizes in pixels."""

    image_size: Size
    patch_size: Size
    width: Size
    layers: Size
    heads: Size
    mlp_ratio: Number = 4.0


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """A BERT whose last `fusion_layers` layers also attend to the image; lengths in tokens."""

    context_length: Size
    width: Size
    layers: Size
    fusion_layers: Size
    heads: Size
    feed_forward: Size
    positions: Size = 512
    token_types: Size = 2
    vocab_size: Size | None = None  # None: the tokenizer's
    dropout: Number = 0.1
    tokenizer: str | None = None  # None: the tokenizer of `text_pretrained`
    clean: str = "none"


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How images are prepared, with open_clip's names."""

    mean: Colors = CLIP_MEAN
    std: Colors = CLIP_STD
    interpolation: str = "bicubic"
    resize_mode: str = "squash"
    fill_color: int = 0


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """The architecture, the preparation of images, and the source of initial weights."""

    embed_dim: Size
    image_cfg: ImageConfig
    text_cfg: TextConfig
    preprocess_cfg: Preprocessing = Preprocessing()
    heads: str = "linear"
    learns_temperature: bool = False
    image_pretrained: str | None = None
    text_pretrained: str | None = None
    directory: Path | None = None  # the checkpoint it was read from

    @property
    def transform(self) -> ImageTransform:
        """How images are prepared for the model."""
        preprocessing = dataclasses.asdict(self.preprocess_cfg)
        return ImageTransform(image_size=self.image_cfg.image_size, **preprocessing)

    def stored(self) -> dict[str, Any]:
        """The content of `config.json`, without the source of initial weights."""
        values = dataclasses.asdict(self)
        for name in ("directory", "image_pretrained", "text_pretrained"):
            del values[name]
        return {"family": FAMILY, **values}


_PARTS = {"image_cfg": ImageConfig, "text_cfg": TextConfig, "preprocess_cfg": Preprocessing}


def read_fusion(path: Path) -> FusionConfig | None:
    """The configuration in a JSON file; None if it is not that of a fusion model.

    Raises BadInput if it is one, but wrong.
    """
    try:
        stored = read_json(path)
    except BadInput:
        return None  # reading it as another family of models reports what is wrong
    if not isinstance(stored, dict) or stored.get("family") != FAMILY:
        return None
    found = parse(stored, str(path))
    text = found.text_cfg
    return replace(
        found,
        image_pretrained=_beside(path, found.image_pretrained),
        text_pretrained=_beside(path, found.text_pretrained),
        text_cfg=replace(text, tokenizer=_beside(path, text.tokenizer)),
    )


def refuse_huge(config: Any, what: str, name: str = "") -> None:
    """Raise BadInput, naming the setting, if a number anywhere in a configuration is huge.

    Others may have written it: ten million layers take hours to build, and a width of ten million
    fills the memory. open_clip's largest model, of 5 billion weights, is within these bounds.
    """
    if isinstance(config, Mapping):
        for key, value in config.items():
            refuse_huge(value, what, f"{name}.{key}" if name else str(key))
    elif isinstance(config, list):
        for value in config:
            refuse_huge(value, what, name)
    elif isinstance(config, int | float):
        most = 1000 if name.endswith(("layers", "heads")) else 65_536
        most = 10_000_000 if name.endswith(("vocab_size", "_id")) else most
        if not abs(config) <= most:  # also of NaN
            raise BadInput(f"{what}: {name} is {config}; it must be at most {most}")


def parse(stored: Mapping[str, Any], what: str) -> FusionConfig:
    """A configuration from a JSON object; `what` is its source, for messages.

    Raises BadInput for unknown or missing names, wrong types, and sizes that do not match.
    """
    refuse_huge(stored, what)
    values = {name: value for name, value in stored.items() if name != "family"}
    for name, kind in ((None, FusionConfig), *_PARTS.items()):
        given = values if name is None else values.get(name)
        known = [each.name for each in dataclasses.fields(kind) if each.name != "directory"]
        unknown = sorted(given.keys() - known) if isinstance(given, dict) else ()
        if unknown:
            place = what if name is None else f"{what}: {name}"
            raise BadInput(f"{place}: {unknown_name('setting', unknown[0], known)}")
    found = converted(values, FusionConfig, what)
    _check(found, what)
    return found


def with_changes(
    found: FusionConfig, text_length: int | None, image_size: int | None, heads: str | None
) -> FusionConfig:
    """The configuration with another text length, image size or kind of projections, where given.

    Raises UsageError if the model cannot have that length or size.
    """
    text, image = found.text_cfg, found.image_cfg
    if text_length is not None:
        if text_length > text.positions:
            raise UsageError(
                f"--text-length {text_length}: the model has only {text.positions} positions"
            )
        text = replace(text, context_length=text_length)
    if image_size is not None:
        if image_size % image.patch_size:
            raise UsageError(
                f"--image-size {image_size} is not a multiple of the patch size {image.patch_size}"
            )
        image = replace(image, image_size=image_size)
    return replace(found, text_cfg=text, image_cfg=image, heads=heads or found.heads)


def _check(found: FusionConfig, what: str) -> None:
    """Raise BadInput if no model can be built from the configuration."""
    image, text, prepared = found.image_cfg, found.text_cfg, found.preprocess_cfg
    modes = ", ".join(RESIZE_MODES)
    wrong = {
        f"heads must be one of {', '.join(HEADS)}, not {found.heads!r}": found.heads not in HEADS,
        f"clean must be one of {', '.join(CLEAN)}, not {text.clean!r}": text.clean not in CLEAN,
        f"interpolation must be one of {', '.join(INTERPOLATIONS)}": (
            prepared.interpolation not in INTERPOLATIONS
        ),
        f"resize_mode must be one of {modes}": prepared.resize_mode not in RESIZE_MODES,
        "dropout must be from 0 to 1": not 0 <= text.dropout <= 1,
        "mlp_ratio must be positive": image.mlp_ratio <= 0,
        "images and texts must have tokens of the same width": image.width != text.width,
        "the width is not a multiple of the heads": bool(
            image.width % image.heads or text.width % text.heads
        ),
        "image_size is not a multiple of patch_size": bool(image.image_size % image.patch_size),
        "fusion_layers must be from 1 to layers": not 1 <= text.fusion_layers <= text.layers,
        "context_length is greater than positions": text.context_length > text.positions,
    }
    for reason, holds in wrong.items():
        if holds:
            raise BadInput(f"{what}: {reason}")


def _beside(path: Path, name: str | None) -> str | None:
    """The name, or the absolute path of the file or directory of that name beside `path`."""
    if name and (path.parent / name).exists():
        return os.path.abspath(path.parent / name)
    return name
