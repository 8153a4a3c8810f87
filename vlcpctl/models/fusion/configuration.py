"""The configuration of a fusion model: of a JSON file or of a checkpoint. Torch-free."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.view import View

FAMILY = "fusion"
CONFIG_FILE = "config.json"

HEADS = ("linear", "cosine")
CLEAN = ("none", "ctp", "whitespace", "lower", "canonicalize")  # the last three are open_clip's

# Of CLIP's training images; the CTP authors normalise by them too.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

# What JSON may hold for an annotation.
_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "str": (str,),
    "str | None": (str, type(None)),
    "tuple[float, float, float]": (list, tuple),
}


# What to do where the hub is out of reach.
ELSEWHERE = (
    "fetch it elsewhere and pass local files: --pretrained image=FILE,text=DIR; "
    "or train a small model with --preset tiny --model albef-tiny"
)


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """A vision transformer as timm builds it."""

    image_size: int
    patch_size: int
    width: int
    layers: int
    heads: int
    mlp_ratio: float = 4.0


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """A BERT; its last `fusion_layers` attend to the image too."""

    context_length: int
    width: int
    layers: int
    fusion_layers: int
    heads: int
    feed_forward: int
    positions: int = 512
    token_types: int = 2
    vocab_size: int | None = None  # None: as the tokenizer has it
    dropout: float = 0.1
    tokenizer: str | None = None  # None: that of `text_pretrained`
    clean: str = "none"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How images are prepared, as open_clip names it."""

    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    interpolation: str = "bicubic"
    resize_mode: str = "squash"
    fill_color: int = 0


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """The architecture, the preparation of images, and where first weights come from."""

    embed_dim: int
    image_cfg: ImageConfig
    text_cfg: TextConfig
    preprocess_cfg: Preparation = Preparation()
    heads: str = "linear"
    learns_temperature: bool = False
    image_pretrained: str | None = None
    text_pretrained: str | None = None
    directory: Path | None = None  # the checkpoint that it lies in

    @property
    def view(self) -> View:
        """How the model takes images."""
        prepared = dataclasses.asdict(self.preprocess_cfg)
        return View(image_size=self.image_cfg.image_size, **prepared)

    def stored(self) -> dict[str, Any]:
        """What `config.json` says; first weights are no concern of a model that has its own."""
        values = dataclasses.asdict(self)
        for name in ("directory", "image_pretrained", "text_pretrained"):
            del values[name]
        return {"family": FAMILY, **values}


def read_fusion(path: Path) -> FusionConfig | None:
    """The configuration of a JSON file; None if it is none of a fusion model."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # whoever reads it as another family says what is wrong
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


def parse(stored: Mapping[str, Any], what: str) -> FusionConfig:
    """A configuration from what a JSON file says; unknown and missing names are errors."""
    values = {name: value for name, value in stored.items() if name != "family"}
    for name, kind in (("image_cfg", ImageConfig), ("text_cfg", TextConfig)):
        values[name] = _fill(kind, values.get(name), f"{what}: {name}")
    values["preprocess_cfg"] = _fill(
        Preparation, values.get("preprocess_cfg", {}), f"{what}: preprocess_cfg"
    )
    found: FusionConfig = _fill(FusionConfig, values, what)
    _check(found, what)
    return found


def with_changes(
    found: FusionConfig, text_length: int | None, image_size: int | None, heads: str | None
) -> FusionConfig:
    """The configuration for another text length, image size or kind of projections."""
    text, image = found.text_cfg, found.image_cfg
    if text_length is not None:
        if text_length > text.positions:
            raise UsageError(
                f"--text-length {text_length}: the model has {text.positions} positions"
            )
        text = replace(text, context_length=text_length)
    if image_size is not None:
        if image_size % image.patch_size:
            raise UsageError(
                f"--image-size {image_size} is no multiple of patches of {image.patch_size} pixels"
            )
        image = replace(image, image_size=image_size)
    return replace(found, text_cfg=text, image_cfg=image, heads=heads or found.heads)


def _fill(kind: Any, values: Any, what: str) -> Any:
    """A dataclass of a JSON object."""
    if not isinstance(values, dict):
        raise BadInput(f"{what} is not an object")
    known = {each.name: each for each in dataclasses.fields(kind) if each.name != "directory"}
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        raise BadInput(f"{what} has {unknown[0]!r}, which is none of {', '.join(sorted(known))}")
    for name, value in values.items():
        kinds = _KINDS.get(str(known[name].type))
        if kinds is not None and type(value) not in kinds:
            raise BadInput(f"{what}: {name} must be {known[name].type}, not {value!r}")
    missing = [
        name
        for name, each in known.items()
        if name not in values
        and each.default is dataclasses.MISSING
        and each.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise BadInput(f"{what} lacks {', '.join(map(repr, missing))}")
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})


def _check(found: FusionConfig, what: str) -> None:
    """Refuse what no model can be built of."""
    image, text = found.image_cfg, found.text_cfg
    wrong = {
        f"heads {found.heads!r} is none of {', '.join(HEADS)}": found.heads not in HEADS,
        f"clean {text.clean!r} is none of {', '.join(CLEAN)}": text.clean not in CLEAN,
        "images and texts need tokens of one width": image.width != text.width,
        "the width is no multiple of the heads": bool(
            image.width % image.heads or text.width % text.heads
        ),
        "image_size is no multiple of patch_size": bool(image.image_size % image.patch_size),
        "fusion_layers lies outside 1 ... layers": not 1 <= text.fusion_layers <= text.layers,
        "context_length is above positions": text.context_length > text.positions,
    }
    for reason, holds in wrong.items():
        if holds:
            raise BadInput(f"{what}: {reason}")


def _beside(path: Path, name: str | None) -> str | None:
    """A name, or the path of what lies beside the file under that name."""
    if name and (path.parent / name).exists():
        return os.path.abspath(path.parent / name)
    return name
