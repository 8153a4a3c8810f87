"""Presets: the training settings of each paper, usable with any method. Torch-free.

A value of `training/presets/NAME.toml` is the paper's unless `sources` names another source, which
the origins of settings say, too. `docs/papers/*_deviations.md` compare papers and authors' code.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.method import Method
from vlcpctl.core.options import idle_rows, refuse_idle
from vlcpctl.core.words import parse_number, parse_whole_number
from vlcpctl.data.loading.replay import UNION, Replay
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.training.lora import parse_lora
from vlcpctl.training.settings import RANDAUGMENT_MOST, SETTINGS, Settings

_PLACE = Path(__file__).parent / "presets"
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


def configuration(
    settings: Settings, origins: Mapping[str, str], methods: Sequence[Method]
) -> Iterator[tuple[str, Any, str]]:
    """(name, value, origin) of every setting and hyper-parameter, for --dry-run."""
    for name in SETTINGS:
        yield name, getattr(settings, name), origins.get(name, "default")
    for method in methods:
        for field in dataclasses.fields(method):
            name, value = f"{method.name}.{field.name}", getattr(method, field.name)
            usual = field.metadata["origin"] if value == field.default else "flag"
            yield name, value, origins.get(name, usual)


def resolve(
    preset_name: str, flags: Mapping[str, Any], inherited: Mapping[str, Any]
) -> tuple[Settings, dict[str, str]]:
    """The settings, and the origin of each value.

    Of the preset's, the methods' (`inherited`) and the user's (`flags`), the later one wins. Raises
    UsageError for a value that is not allowed.
    """
    found = preset(preset_name)
    of_preset = dict.fromkeys(found.settings, f"preset {preset_name}")
    of_preset |= {name: f"preset {preset_name}, {source}" for name, source in found.sources.items()}
    values = {**found.settings, **inherited, **flags}
    origins = dict.fromkeys(SETTINGS, "default") | of_preset
    origins |= dict.fromkeys(inherited, "method") | dict.fromkeys(flags, "flag")
    settings = Settings(**values)
    _check(settings)
    return settings, origins


def _check(settings: Settings) -> None:
    """Raise UsageError for values that do not go together, or a text that cannot be parsed."""
    if settings.micro_batch and settings.batch_size % settings.micro_batch:
        raise UsageError(
            f"--batch-size {settings.batch_size} is not divisible by "
            f"--micro-batch {settings.micro_batch}"
        )
    _check_augmentation(settings)
    # A constant schedule never falls to --min-lr, which a preset may have set.
    if settings.schedule != "constant" and settings.min_lr > settings.lr:
        raise UsageError(f"--min-lr {settings.min_lr:g} is above --lr {settings.lr:g}")
    if settings.temperature is not None:
        parse_temperature(settings.temperature)
    parse_replay(settings.replay)
    if settings.lora is not None:
        parse_lora(settings.lora)
    if settings.scale_per_step is not None:
        parse_scale(settings.scale_per_step)


def _check_augmentation(settings: Settings) -> None:
    low, high = settings.crop_scale
    if low > high:
        raise UsageError(f"--crop-scale {low:g},{high:g}: the first number is above the second")
    for number, most in zip(settings.randaugment or (), RANDAUGMENT_MOST, strict=False):
        if not 0 <= number <= most:
            count, magnitude = RANDAUGMENT_MOST
            raise UsageError(
                f"--randaugment {','.join(map(str, settings.randaugment or ()))}: "
                f"N must be from 0 to {count}, and M from 0 to {magnitude}"
            )


def parse_replay(replay: str) -> Replay:
    """Parse `--replay`. Raises UsageError for anything but `union`, `share=X` and `least=X`.

    >>> parse_replay("share=0.5").share, parse_replay("union").share
    (0.5, None)
    """
    if replay == "union":
        return UNION
    name, _, text = replay.partition("=")
    try:
        share = parse_number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if name not in {"share", "least"} or not 0 < share < 1:
        raise UsageError(
            f"--replay {replay!r} is not 'union', nor 'share=X' or 'least=X' with 0 < X < 1"
        )
    return Replay(share, is_least=name == "least")


def parse_scale(text: str) -> int | None:
    """Parse `--scale-per-step`: the steps that shares were chosen for; None for the paper's.

    Raises UsageError for anything but a number of steps and `paper`.

    >>> parse_scale("500"), parse_scale("paper")
    (500, None)
    """
    if text == "paper":
        return None
    with suppress(ValueError):
        if (steps := parse_whole_number(text)) > 0:
            return steps
    raise UsageError(f"--scale-per-step {text!r} is neither 'paper' nor a number of steps")


def refuse_idle_settings(settings: Settings, origins: Mapping[str, str]) -> None:
    """Raise UsageError for a flag that has no effect with the other settings.

    Only flags count: a preset may set a value that has no effect with another flag.
    """
    flags = [name for name, origin in origins.items() if origin == "flag"]
    refuse_idle(idle_rows(Settings), vars(settings), flags)
    if "decay" in flags and not settings.weight_decay:
        raise UsageError("--decay has no effect with --weight-decay 0")
    if "epochs" in flags and "steps" in flags:
        raise UsageError("--epochs has no effect with --steps: both set the length; give one")
