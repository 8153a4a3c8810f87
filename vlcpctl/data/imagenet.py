"""ImageNet's class names and prompt templates from CLIP (Radford et al., 2021), via open_clip."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

NAME, CLASSES = "imagenet1k", 1000


def class_names() -> list[str]:
    """The 1,000 class names in the order of the labels; two of the names occur twice."""
    return list(_metadata().IMAGENET_CLASSNAMES)


def templates() -> list[str]:
    """The 80 prompt templates, with {c} for the class name."""
    return [template("{c}") for template in _metadata().OPENAI_IMAGENET_TEMPLATES]


@cache
def _metadata() -> ModuleType:
    """Load open_clip's metadata module alone: importing the package would import torch."""
    package = importlib.util.find_spec("open_clip")
    assert package is not None, "open_clip is a dependency"
    file = Path(str(package.origin)).parent / "zero_shot_metadata.py"
    spec = importlib.util.spec_from_file_location("open_clip_zero_shot_metadata", file)
    assert spec is not None, f"{file} is a module"
    assert spec.loader is not None, f"{file} is a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
