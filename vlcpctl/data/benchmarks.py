"""The data sets that papers on continual CLIP report, by name, and where to look for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError, unknown_name

# Other names of the same data, the name in CLIP_benchmark first.
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

# One word for several: the eight of Table 1 (Yan et al., 2022), in its order.
GROUPS = {
    "incclip": (
        *("imagenet1k", "cifar10", "cifar100", "caltech101"),
        *("sun397", "food101", "flowers", "dtd"),
    )
}

# A folder's name: bare, as clip_benchmark_export_wds makes it, and as it lies on the hub.
_PLACES = ("{}", "wds_{}", "vtab/{}", "vtab-{}", "wds_vtab-{}")


@dataclass(frozen=True)
class Benchmark:
    """A data set by its name, and the folder that holds it."""

    name: str
    path: Path


def find_benchmark(word: str, data: Path | None) -> Benchmark:
    """The folder of a data set below --data, by its name."""
    name = _name_of(word)
    if name is None:
        known = [*BENCHMARKS, *GROUPS]
        raise UsageError(f"{word} is no path here; {unknown_name('data set', word, known)}")
    if data is None:
        raise UsageError(
            f"{word} is a data set by name: say with --data in which directory to look for it, "
            "or give its folder"
        )
    tried = [place.format(one) for one in (name, *BENCHMARKS[name]) for place in _PLACES]
    for place in tried:
        if (data / place).is_dir():
            return Benchmark(name, data / place)
    raise BadInput(
        f"{data} has no folder of {name}: looked for {', '.join(tried)}; it is to be in "
        "CLIP_benchmark's layout, as clip_benchmark_export_wds writes it"
    )


def usual_name(folder: str) -> str:
    """What rows call the data in a folder of this name.

    >>> usual_name("wds_vtab-flowers"), usual_name("imagenet"), usual_name("my-birds")
    ('flowers', 'imagenet1k', 'my-birds')
    """
    plain = folder.removeprefix("wds_")
    return _name_of(plain.removeprefix("vtab-")) or plain


def expanded(words: list[str]) -> list[str]:
    """The words, with the data sets of a group in its place, unless a path has that name.

    >>> expanded(["incclip"])[:2]
    ['imagenet1k', 'cifar10']
    """
    return [
        name
        for word in words
        for name in (GROUPS[word] if word in GROUPS and not Path(word).exists() else (word,))
    ]


def _name_of(word: str) -> str | None:
    return next((name for name, other in BENCHMARKS.items() if word in (name, *other)), None)
