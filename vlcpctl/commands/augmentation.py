"""Options for image augmentation, and parsing of options that are a pair of numbers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.core.errors import UsageError

Crop = Annotated[
    str | None,
    typer.Option(
        help="Crop of training images: none, center or random (default: from the preset).",
        rich_help_panel=options.DATA,
    ),
]
CropScale = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="Share of the area that --crop random keeps (default: from the preset).",
        rich_help_panel=options.DATA,
    ),
]
Flip = Annotated[
    bool | None,
    typer.Option(
        "--flip/--no-flip",
        help="Mirror training images with probability 0.5 (default: from the preset).",
        rich_help_panel=options.DATA,
    ),
]
RandAugment = Annotated[
    str | None,
    typer.Option(
        metavar="N,M",
        help="Apply RandAugment with N operations of magnitude M (default: from the preset).",
        rich_help_panel=options.DATA,
    ),
]

_PAIRS: tuple[tuple[str, type[int] | type[float]], ...] = (
    ("betas", float),
    ("crop_scale", float),
    ("randaugment", int),
)


def with_pairs(given: dict[str, Any]) -> dict[str, Any]:
    """The options by name, with each pair of numbers parsed.

    Raises UsageError if a value is not two numbers with a comma.

    >>> with_pairs({"crop": "random", "crop_scale": "0.2,1"})
    {'crop': 'random', 'crop_scale': (0.2, 1.0)}
    """
    pairs = {name: _pair(name, given[name], kind) for name, kind in _PAIRS if name in given}
    return {**given, **pairs}


def _pair(name: str, text: str, kind: type[int] | type[float]) -> tuple[int | float, int | float]:
    """Parse two numbers with a comma between them."""
    first, comma, second = text.partition(",")
    try:
        if comma:
            return kind(first), kind(second)
    except ValueError:
        pass
    raise UsageError(f"--{name.replace('_', '-')} {text!r} is not two numbers such as 0.9,0.99")
