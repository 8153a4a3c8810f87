"""Checks of a method from outside, before training relies on what it declares. Torch-free."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.core.method import hyper

# What a method declares, with an example of each.
OF_A_METHOD = {
    "name": '"mine"',
    "title": '"What it does, in one line"',
    "preset": '"ctp", the training budget of runs without --preset',
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # + joins names, and . and = end one in --set
_KEYS = frozenset(hyper(0, doc="", origin="").metadata)  # as `hyper` sets them


def check_declaration(
    kind: type[Any], where: str, declares: Mapping[str, str] = OF_A_METHOD
) -> None:
    """Raise BadInput if a class does not declare what it must; `where` defines it."""
    for problem in _problems(kind, declares):
        raise BadInput(f"{where}: class {kind.__qualname__} {problem}")
    try:
        kind()
    except Exception as error:
        raise BadInput(
            f"{where}: class {kind.__qualname__} cannot be made with its default "
            f"hyper-parameters: {type(error).__name__}: {first_line(error)}"
        ) from error


def _problems(kind: type[Any], declares: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a class, most basic first."""
    for attribute, example in declares.items():
        value = getattr(kind, attribute, None)
        if not isinstance(value, str) or not value:
            yield f"lacks a {attribute}; add {attribute}: ClassVar[str] = {example}"
    if not _NAME.fullmatch(kind.name):
        yield f"has the name {kind.name!r}; use letters, digits, - and _ only"
    undecorated = [
        name for name, value in vars(kind).items() if isinstance(value, dataclasses.Field)
    ]
    if undecorated:
        yield (
            f"is not a dataclass, so that {undecorated[0]} is not a hyper-parameter; put "
            "@dataclass(frozen=True, kw_only=True) above it"
        )
    for field in dataclasses.fields(kind):
        if not field.metadata.keys() >= _KEYS:
            yield (
                f"has the field {field.name}, which is not made by hyper(default, doc=..., "
                "origin=...)"
            )
