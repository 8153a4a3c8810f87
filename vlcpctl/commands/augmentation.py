"""The options of how training varies images, and those that are two numbers with a comma."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from vlcpctl.core.errors import UsageError

Crop = Annotated[str | None, typer.Option(help="none, center or random.")]
CropScale = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="Area kept by random crops.")
]
Flip = Annotated[bool | None, typer.Option("--flip/--no-flip", help="Flip half of the images.")]
RandAugment = Annotated[
    str | None, typer.Option(metavar="N,M", help="N operations of magnitude M.")
]

_PAIRS: tuple[tuple[str, type[int] | type[float]], ...] = (
    ("betas", float),
    ("crop_scale", float),
    ("randaugment", int),
)


def with_pairs(given: dict[str, Any]) -> dict[str, Any]:
    """The options by name, those that are two numbers as such.

    >>> with_pairs({"crop": "random", "crop_scale": "0.2,1"})
    {'crop': 'random', 'crop_scale': (0.2, 1.0)}
    """
    pairs = {name: _pair(name, given[name], kind) for name, kind in _PAIRS if name in given}
    return {**given, **pairs}


def _pair(name: str, text: str, kind: type[int] | type[float]) -> tuple[int | float, int | float]:
    """Two numbers with a comma between them."""
    first, comma, second = text.partition(",")
    try:
        if comma:
            return kind(first), kind(second)
    except ValueError:
        pass
    raise UsageError(f"--{name.replace('_', '-')} {text!r} is not two numbers such as 0.9,0.99")
