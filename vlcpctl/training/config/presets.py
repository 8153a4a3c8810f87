"""Presets: the training settings of each paper, usable with any method. Torch-free.

A value of `training/presets/NAME.toml` is the paper's unless `sources` names another source, which
the origins of settings say, too. `docs/papers/*_deviations.md` compare papers and authors' code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vlcpctl.core.errors import UsageError, unknown_name

_PLACE = Path(__file__).parents[1] / "presets"
# A --set of the second turns on what the first, of a preset, turns off.
ASKS_FOR = {"ctp.queue": "ctp.keep_queue"}
# Without --preset: most models are dual encoders, and CTP's fusion model is asked for by name.
INSTEAD = {"ctp": "ctp-dual"}


class Preset(NamedTuple):
    """The settings of a preset, and the hyper-parameters that it sets as --set has them.

    `sources` name where a setting is from, if not from the preset's paper; every hyper-parameter
    has its source.
    """

    settings: dict[str, Any]
    sources: dict[str, str]
    hyper: dict[str, str]


@cache
def names() -> tuple[str, ...]:
    """The names of the presets."""
    return tuple(sorted(path.stem for path in _PLACE.glob("*.toml")))


@cache
def preset(name: str) -> Preset:
    """A preset by its name; raises UsageError for an unknown one."""
    if name not in names():
        raise UsageError(unknown_name("preset", name, names()))
    found = tomllib.loads((_PLACE / f"{name}.toml").read_text(encoding="utf-8"))
    sources = {one: source for source, some in found.get("sources", {}).items() for one in some}
    return Preset(found["settings"], sources, found.get("set", {}))


def hyper_of_preset(name: str, methods: Iterable[str]) -> dict[str, str]:
    """What a preset sets of these methods, as --set has it, with the source of each value.

    >>> list(hyper_of_preset("tiny", ["ctp", "er"])), hyper_of_preset("update", ["ctp"])
    (['ctp.queue=0'], {})
    """
    known, assignments = set(methods), preset(name).hyper.items()
    return {one: source for one, source in assignments if one.partition(".")[0] in known}


def presets_that_set(parameter: str) -> str:
    """Which presets set a METHOD.PARAMETER, for a list of parameters; empty for most.

    >>> presets_that_set("ctp.queue"), presets_that_set("ctp.m")
    ('preset tiny has 0, chosen on the validation split of Emoji-9', '')
    """
    return "; ".join(
        f"preset {name} has {assignment.partition('=')[2]}, {source}"
        for name in names()
        for assignment, source in preset(name).hyper.items()
        if assignment.partition("=")[0] == parameter
    )
