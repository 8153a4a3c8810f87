"""Imports the parts of open_clip and timm that a run uses, without what they do not need.

`import torch, open_clip` takes 6.1 CPU seconds, torch and all parts here 2.5, of which torch alone
takes 2.3. What the packages import on top of that is put off until it is used: torch._dynamo (1.5
s), the other models of timm, transformers, torchvision, the client of the Hugging Face hub. Both
kinds of stand-ins give way to the real thing as soon as anything else than the names listed is
used, so that other versions of a library work as well: they are imported more slowly. Nothing else
imports open_clip or timm.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import ModuleType
from typing import Any, NamedTuple


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


class LazyPackage(ModuleType):
    """A package whose submodules are imported when they are used, and whose `__init__` is not run.

    It is run, and makes this an ordinary module, when anything is used that is neither a submodule
    in `_parts` nor a name in `_homes`, which says from which submodule the package has it. All of
    this is imported within the context `_around`.
    """

    _parts: Collection[str]
    _homes: Mapping[str, str]
    _around: Callable[[], AbstractContextManager[None]]

    def __getattr__(self, name: str) -> Any:
        part = self._homes.get(name, name)
        if part.startswith("_"):  # the import system looks some of these up
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        if part in self._parts:
            with self._around():
                module = importlib.import_module(f"{self.__name__}.{part}")
            return module if part == name else getattr(module, name)
        _run_init(self)
        return getattr(self, name)


def install(
    name: str,
    parts: Collection[str] = (),
    homes: Mapping[str, str] | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ModuleType:
    """The package of this name in sys.modules, put there as a LazyPackage unless it is imported.

    Raises ModuleNotFoundError if it is not installed.
    """
    if name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        package = importlib.util.module_from_spec(spec)
        vars(package).update(_parts=parts, _homes=homes or {}, _around=around)
        package.__class__ = LazyPackage
        sys.modules[name] = package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, package)
    return sys.modules[name]


def whole(name: str) -> ModuleType:
    """The package of this name, imported, and none that puts anything off."""
    package = importlib.import_module(name)
    if isinstance(package, LazyPackage):
        _run_init(package)
    return package


def _run_init(package: ModuleType) -> None:
    spec = package.__spec__
    assert spec is not None, "the package was made from its spec"
    assert spec.loader is not None, "the package is a file"
    package.__class__ = ModuleType  # first, since what it imports may look names up in it
    try:
        with vars(package)["_around"]():
            spec.loader.exec_module(package)
    except BaseException:
        package.__class__ = LazyPackage
        raise


@contextmanager
def put_off(stand_ins: Iterable[StandIn]) -> Iterator[None]:
    """Within the block these stand-ins are the modules of their names.

    A module that is imported already stays.
    """
    with ExitStack() as undo:
        for stand_in in stand_ins:
            if stand_in.__name__ not in sys.modules:
                sys.modules[stand_in.__name__] = stand_in
                undo.callback(stand_in.withdraw)
        yield


class StandIn(ModuleType):
    """A module with functions or classes that import it when they are called.

    Replaced by the real module as soon as anything else in it is used.
    """

    def __init__(self, name: str, functions: Collection[str]) -> None:
        super().__init__(name)
        self._functions = frozenset(functions)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks these up
            raise AttributeError(name)
        if name not in self._functions:
            return getattr(self._real(), name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            return getattr(self._real(), name)(*arguments, **keywords)

        return call

    def _real(self) -> ModuleType:
        self.withdraw()
        return importlib.import_module(self.__name__)

    def withdraw(self) -> None:
        """Take this out of sys.modules, if it is still there."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


class _Ftfy(StandIn):
    """The package ftfy, which takes 0.1 s to import, for open_clip's tokenizer of byte pairs.

    Plain ASCII is what it makes of plain ASCII: it is imported for the first other text.
    """

    def fix_text(self, text: str) -> str:
        plain = text.isascii() and text.isprintable() and "&" not in text
        fixed: str = text if plain else self._real().fix_text(text)
        return fixed


def open_clip(config: dict[str, Any] | None = None) -> ModuleType:
    """The package open_clip, with the libraries that the towers of this configuration need."""
    library = install(_OPEN_CLIP, _PARTS, _HOMES, _without_libraries)
    if config and config["vision_cfg"].get("timm_model_name"):
        _complete(_TIMM)
    if config and config["text_cfg"].get("hf_model_name"):
        _complete(_TRANSFORMERS)
    return library


@contextmanager
def timm_parts() -> Iterator[None]:
    """Within the block modules of timm are imported without the hundreds beside them."""
    install("timm", ["version"], {"__version__": "version"})
    install("timm.models")
    install("timm.data", ["constants"], dict.fromkeys(_TIMM_DATA, "constants"))
    with put_off(_stand_ins(_COMPILER)):
        yield


def import_all() -> ModuleType:
    """The package open_clip as any program imports it, with timm and transformers.

    For a process of a user: there the towers of other models must work, too, and nothing that is
    put off may remain.
    """
    for name in ("timm", "timm.models", "timm.data", _OPEN_CLIP):
        library = whole(name)
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
        with put_off([*_stand_ins(_UNCALLED), _Ftfy("ftfy", ())]):
            yield
    finally:
        for library in halted:
            del sys.modules[library]


def _stand_ins(functions: Mapping[str, Collection[str]]) -> list[StandIn]:
    return [StandIn(name, names) for name, names in functions.items()]
