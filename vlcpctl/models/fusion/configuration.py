"""The configuration of a fusion model, from a JSON file or a checkpoint. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.transform import ImageTransform
from vlcpctl.files.inputs import converted, read_json

FAMILY = "fusion"
CONFIG_FILE = "config.json"

# Statistics of CLIP's training images, which the CTP authors use too.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

Size = Annotated[int, Meta(ge=1)]
# A whole number of a JSON file stays one.
Number = int | float
Positive = Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)]
Share = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]
Colors = tuple[Number, Number, Number]

# What to do if the hub is out of reach.
ELSEWHERE = (
    "download it elsewhere and pass local files: --pretrained image=FILE,text=DIR; "
    "or train a small model with --preset tiny --model albef-tiny"
)


class _Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a configuration, without others."""


class ImageConfig(_Settings, frozen=True, kw_only=True):
    """A vision transformer of timm; sizes in pixels."""

    image_size: Size
    patch_size: Size
    width: Size
    layers: Size
    heads: Size
    mlp_ratio: Positive = 4.0


class TextConfig(_Settings, frozen=True, kw_only=True):
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
    dropout: Share = 0.1
    tokenizer: str | None = None  # None: the tokenizer of `text_pretrained`
    clean: Literal["none", "ctp", "whitespace", "lower", "canonicalize"] = "none"


class Preprocessing(_Settings, frozen=True, kw_only=True):
    """How images are prepared, with open_clip's names."""

    mean: Colors = CLIP_MEAN
    std: Colors = CLIP_STD
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    resize_mode: Literal["shortest", "longest", "squash"] = "squash"
    fill_color: int = 0


class FusionConfig(_Settings, frozen=True, kw_only=True, tag_field="family", tag=FAMILY):
    """The architecture, the preparation of images, and the source of initial weights."""

    embed_dim: Size
    image_cfg: ImageConfig
    text_cfg: TextConfig
    preprocess_cfg: Preprocessing = Preprocessing()
    heads: Literal["linear", "cosine"] = "linear"
    learns_temperature: bool = False
    image_pretrained: str | None = None
    text_pretrained: str | None = None
    directory: Path | None = None  # the checkpoint it was read from

    @property
    def transform(self) -> ImageTransform:
        """How images are prepared for the model."""
        return ImageTransform(image_size=self.image_cfg.image_size, **asdict(self.preprocess_cfg))

    def stored(self) -> dict[str, Any]:
        """The content of `config.json`, without the source of initial weights."""
        values: dict[str, Any] = msgspec.to_builtins(replace(self, directory=None))
        for name in ("directory", "image_pretrained", "text_pretrained"):
            del values[name]
        return values


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
    refuse_huge(stored, str(path))
    found = converted(stored, FusionConfig, path)
    _check(found, path)
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


def _check(found: FusionConfig, path: Path) -> None:
    """Raise BadInput if no model can be built from sizes that do not match."""
    image, text = found.image_cfg, found.text_cfg
    wrong = {
        "images and texts must have tokens of the same width": image.width != text.width,
        "the width is not a multiple of the heads": bool(
            image.width % image.heads or text.width % text.heads
        ),
        "image_size is not a multiple of patch_size": bool(image.image_size % image.patch_size),
        "fusion_layers must be from 1 to layers": text.fusion_layers > text.layers,
        "context_length is greater than positions": text.context_length > text.positions,
    }
    for reason, holds in wrong.items():
        if holds:
            raise BadInput(f"{path}: {reason}")


def _beside(path: Path, name: str | None) -> str | None:
    """The name, or the absolute path of the file or directory of that name beside `path`."""
    if name and (path.parent / name).exists():
        return os.path.abspath(path.parent / name)
    return name
