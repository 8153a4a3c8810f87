"""Imports the parts of open_clip and timm that a run uses, without what they do not need.

`import torch, open_clip` takes 6.1 CPU seconds, torch and all parts here 2.5, of which torch alone
takes 2.3. What the packages import on top of that is put off until it is used: torch._dynamo (1.5
s), the other models of timm, transformers, torchvision, the client of the Hugging Face hub.
Nothing else imports open_clip or timm.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from vlcpctl.models import lazy_imports


class _Adapter(NamedTuple):
    """A module of open_clip that can be imported without its library until its class is used."""

    library: str
    module: str
    class_name: str


_TIMM = _Adapter("timm", "open_clip.timm_model", "TimmModel")
_TRANSFORMERS = _Adapter("transformers", "open_clip.hf_model", "HFTextEncoder")

_OPEN_CLIP = "open_clip"
_PARTS = ("constants", "convert", "model", "pretrained", "tokenizer", "version")
_NEEDS_THE_HUB = "pretrained"
_HOMES = {
    "__version__": "version",
    "CLIP": "model",
    "CLIPTextCfg": "model",
    "CLIPVisionCfg": "model",
    "CustomTextCLIP": "model",
    "OPENAI_DATASET_MEAN": "constants",
    "OPENAI_DATASET_STD": "constants",
    "download_pretrained": "pretrained",
    "get_pretrained_cfg": "pretrained",
    "list_pretrained_tags_by_model": "pretrained",
}
_IMAGENET = ("DEFAULT_MEAN", "DEFAULT_STD", "INCEPTION_MEAN", "INCEPTION_STD")
_TIMM_DATA = (*(f"IMAGENET_{name}" for name in _IMAGENET), "OPENAI_CLIP_MEAN", "OPENAI_CLIP_STD")
# What torchvision and open_clip import for functions and layers that are not called here.
_COMPILER = {"torch._dynamo.utils": ("is_compile_supported",)}
_UNCALLED = {**_COMPILER, "torchvision.ops.misc": ("FrozenBatchNorm2d",)}


class _Ftfy(lazy_imports.StandIn):
    """The package ftfy, which takes 0.1 s to import, for open_clip's tokenizer of byte pairs.

    Plain ASCII is what it makes of plain ASCII: it is imported for the first other text.
    """

    def fix_text(self, text: str) -> str:
        plain = text.isascii() and text.isprintable() and "&" not in text
        fixed: str = text if plain else self._real().fix_text(text)
        return fixed


def open_clip(config: dict[str, Any] | None = None) -> ModuleType:
    """The package open_clip, with the libraries that the towers of this configuration need."""
    library = lazy_imports.install(_OPEN_CLIP, _PARTS, _HOMES, _without_libraries)
    if config and config["vision_cfg"].get("timm_model_name"):
        _complete(_TIMM)
    if config and config["text_cfg"].get("hf_model_name"):
        _complete(_TRANSFORMERS)
    return library


@contextmanager
def timm_parts() -> Iterator[None]:
    """Within the block modules of timm are imported without the hundreds beside them."""
    lazy_imports.install("timm", ["version"], {"__version__": "version"})
    lazy_imports.install("timm.models")
    lazy_imports.install("timm.data", ["constants"], dict.fromkeys(_TIMM_DATA, "constants"))
    with lazy_imports.put_off(_stand_ins(_COMPILER)):
        yield


def import_all() -> ModuleType:
    """The package open_clip as any program imports it, with timm and transformers.

    For a process of a user: there the towers of other models must work, too, and nothing that is
    put off may remain.
    """
    for name in ("timm", "timm.models", "timm.data", _OPEN_CLIP):
        library = lazy_imports.whole(name)
    _complete(_TIMM)
    _complete(_TRANSFORMERS)
    return library


def preload() -> None:
    """Import in advance what each forked child would otherwise import again.

    Not torch._dynamo, which takes 1.5 s: only LAMB and the SGD of eval-probe load it.
    """
    library = open_clip()
    for part in _PARTS:
        if part != _NEEDS_THE_HUB:
            getattr(library, part)
    importlib.import_module("ftfy")


def _complete(adapter: _Adapter) -> None:
    """Reload an adapter, now with its library, and update the class in open_clip.model."""
    users = open_clip().model
    module = importlib.import_module(adapter.module)
    if getattr(module, adapter.library) is None:
        importlib.import_module(adapter.library)
        module = importlib.reload(module)
        setattr(users, adapter.class_name, getattr(module, adapter.class_name))


@contextmanager
def _without_libraries() -> Iterator[None]:
    """Within the block imports of timm and transformers raise ModuleNotFoundError.

    Those of torchvision get stand-ins.
    """
    libraries = (_TIMM.library, _TRANSFORMERS.library)
    halted = [library for library in libraries if library not in sys.modules]
    sys.modules.update(dict.fromkeys(halted))  # type: ignore[arg-type]
    try:
        with lazy_imports.put_off([*_stand_ins(_UNCALLED), _Ftfy("ftfy", ())]):
            yield
    finally:
        for library in halted:
            del sys.modules[library]


def _stand_ins(functions: Mapping[str, Collection[str]]) -> list[lazy_imports.StandIn]:
    return [lazy_imports.StandIn(name, names) for name, names in functions.items()]
