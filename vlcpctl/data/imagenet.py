"""ImageNet's class names and templates, as open_clip ships them (Radford et al., 2021)."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

NAME, CLASSES = "imagenet1k", 1000


def class_names() -> list[str]:
    """The 1,000 names in the order of the labels; two of them name two classes each."""
    return list(_metadata().IMAGENET_CLASSNAMES)


def templates() -> list[str]:
    """The 80 templates, with {c} for the class."""
    return [template("{c}") for template in _metadata().OPENAI_IMAGENET_TEMPLATES]


@cache
def _metadata() -> ModuleType:
    """The one file of open_clip that has them: the package itself would import torch first."""
    package = importlib.util.find_spec("open_clip")
    assert package is not None, "open_clip is a dependency"
    file = Path(str(package.origin)).parent / "zero_shot_metadata.py"
    spec = importlib.util.spec_from_file_location("open_clip_zero_shot_metadata", file)
    assert spec is not None, f"{file} is a module"
    assert spec.loader is not None, f"{file} is a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
