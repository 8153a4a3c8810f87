"""Classification data sets reported in papers on continual CLIP: names, groups, and folders.

ImageNet's class names and prompt templates are CLIP's (Radford et al., 2021), via open_clip.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

from vlcpctl.core.errors import BadInput, UsageError, unknown_name

# Name in CLIP_benchmark to other names of the same data.
BENCHMARKS = {
    "imagenet1k": ("imagenet",),
    "cifar10": (),
    "cifar100": (),
    "caltech101": (),
    "sun397": (),
    "food101": (),
    "flowers": ("flowers102", "oxford_flowers102"),
    "dtd": (),
    "places365": (),
    "objectnet": (),
}

# Names for several data sets: "incclip" is the eight of Table 1 in Yan et al. (2022), in its order.
GROUPS = {
    "incclip": (
        *("imagenet1k", "cifar10", "cifar100", "caltech101"),
        *("sun397", "food101", "flowers", "dtd"),
    )
}

# Names of a data set's folder: plain, as written by clip_benchmark_export_wds, and as on the hub.
_PLACES = ("{}", "wds_{}", "vtab/{}", "vtab-{}", "wds_vtab-{}")

IMAGENET, IMAGENET_CLASSES = "imagenet1k", 1000


def find_benchmark(word: str, data: Path | None) -> tuple[Path, str]:
    """The folder of a data set in the directory `data`, the value of --data, and its usual name.

    Raises UsageError if the name is unknown or `data` is None, BadInput if there is no such folder.
    """
    name = _name_of(word)
    if name is None:
        known = [*BENCHMARKS, *GROUPS]
        raise UsageError(f"{word} does not exist; {unknown_name('data set', word, known)}")
    if data is None:
        raise UsageError(
            f"{word} is the name of a data set: give the directory that contains it with --data, "
            "or give the path of its folder"
        )
    tried = [place.format(one) for one in (name, *BENCHMARKS[name]) for place in _PLACES]
    for place in tried:
        if (data / place).is_dir():
            return data / place, name
    raise BadInput(
        f"{data} has no folder for {name}: tried {', '.join(tried)}; the folder must have "
        "CLIP_benchmark's layout, as written by clip_benchmark_export_wds"
    )


def usual_name(folder: str) -> str:
    """The name that evaluation rows give to the data in a folder of this name.

    >>> usual_name("wds_vtab-flowers"), usual_name("imagenet"), usual_name("my-birds")
    ('flowers', 'imagenet1k', 'my-birds')
    """
    plain = folder.removeprefix("wds_")
    return _name_of(plain.removeprefix("vtab-")) or plain


def expand_groups(words: list[str]) -> list[str]:
    """Replace the name of a group by its data sets, unless a path of that name exists.

    >>> expand_groups(["incclip"])[:2]
    ['imagenet1k', 'cifar10']
    """
    return [
        name
        for word in words
        for name in (GROUPS[word] if word in GROUPS and not Path(word).exists() else (word,))
    ]


def _name_of(word: str) -> str | None:
    return next((name for name, other in BENCHMARKS.items() if word in (name, *other)), None)


def imagenet_class_names() -> list[str]:
    """The 1,000 class names in the order of the labels; two names are of two classes each."""
    return list(_imagenet_metadata().IMAGENET_CLASSNAMES)


def imagenet_templates() -> list[str]:
    """The 80 prompt templates, with {c} for the class name."""
    return [template("{c}") for template in _imagenet_metadata().OPENAI_IMAGENET_TEMPLATES]


@cache
def _imagenet_metadata() -> ModuleType:
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
