"""Find a model's configuration: a JSON file, a packaged name, or a name that open_clip knows."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.view import View
from vlcpctl.models.imports import open_clip

PACKAGED = Path(__file__).parent / "configs"

# Names that presets use and that later versions bring.
NOT_YET = {"albef-base": "the fusion model", "albef-tiny": "the fusion model"}


def find_config(model: str) -> dict[str, Any]:
    """A copy of the configuration, its tokenizer's directory made absolute."""
    path = Path(model)
    if path.suffix == ".json":
        return _read(path)
    packaged = PACKAGED / f"{model}.json"
    if packaged.is_file():
        return _read(packaged)
    if model in NOT_YET:
        raise UsageError(
            f"model {model!r} is {NOT_YET[model]}, which this version does not have; "
            "give a dual encoder with --model, such as ViT-B-32, or --preset tiny"
        )
    library = open_clip()
    config = library.get_model_config(model)
    if config is None:
        names = [*library.list_models(), *(path.stem for path in PACKAGED.glob("*.json"))]
        raise UsageError(unknown_name("model", model, names)[:300] + " ...")
    return copy.deepcopy(dict(config))


def with_shape(config: dict[str, Any], text_length: int | None, image_size: int | None) -> dict[str, Any]:
    """The configuration for another text length or image size."""
    if text_length is not None:
        config["text_cfg"]["context_length"] = text_length
    if image_size is not None:
        config["vision_cfg"]["image_size"] = image_size
    return config


def view_of(config: dict[str, Any], preprocess: dict[str, Any]) -> View:
    """How images are prepared: the preprocess settings of a checkpoint, or open_clip's defaults."""
    library = open_clip()
    size = preprocess.get("size", config["vision_cfg"].get("image_size", 224))
    side = size[-1] if isinstance(size, list | tuple) else size
    return View(
        image_size=int(side),
        mean=tuple(preprocess.get("mean", library.OPENAI_DATASET_MEAN)),
        std=tuple(preprocess.get("std", library.OPENAI_DATASET_STD)),
        interpolation=preprocess.get("interpolation", "bicubic"),
        resize_mode=preprocess.get("resize_mode", "shortest"),
        fill_color=preprocess.get("fill_color", 0),
    )


def preprocess_of(view: View) -> dict[str, Any]:
    """The preprocess settings that open_clip reads."""
    return {
        "size": view.image_size,
        "mode": "RGB",
        "mean": list(view.mean),
        "std": list(view.std),
        "interpolation": view.interpolation,
        "resize_mode": view.resize_mode,
        "fill_color": view.fill_color,
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is no model configuration: {error}") from error
    missing = {"embed_dim", "vision_cfg", "text_cfg"} - config.keys()
    if missing:
        raise BadInput(f"{path} is no open_clip model configuration: it has no {', '.join(sorted(missing))}")
    for name in ("hf_tokenizer_name", "hf_model_name"):
        local = path.parent / str(config["text_cfg"].get(name) or "")
        if config["text_cfg"].get(name) and local.is_dir():
            config["text_cfg"][name] = str(local)
    return config
