"""The resolved settings of a train-step, with the origin of each value. Torch-free."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.options import idle_rows, refuse_idle
from vlcpctl.core.words import parse_number
from vlcpctl.data.loading.replay import UNION, Replay
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.training.config.lora import parse_lora
from vlcpctl.training.config.per_step import parse_scale
from vlcpctl.training.config.presets import preset
from vlcpctl.training.config.settings import RANDAUGMENT_MOST, SETTINGS, Settings


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
