"""The resolved settings of a train-step, with the origin of each value. Torch-free."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlcpctl.core.amounts import parse_number
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method, lies_within
from vlcpctl.core.option_rules import GoesWith, refuse_idle
from vlcpctl.core.transform import EXACT, JPEG_DECODINGS
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.training.config.per_step import parse_scale
from vlcpctl.training.config.presets import preset, source_of

CHOICES = {
    "optimizer": ("adamw", "adam", "sgd", "lamb"),
    "schedule": ("cosine", "constant", "plateau"),
    "decay": ("weights", "all"),
    "captions": ("one", "all"),
    "crop": ("none", "center", "random"),
    "jpeg_decode": JPEG_DECODINGS,
    "precision": ("auto", "fp32", "bf16", "fp16"),
    "base_loss": ("mean", "sum"),
    "negatives": ("all", "distinct"),
    "masking": ("bert", "all"),
    "heads": ("linear", "cosine"),
    "keep": ("last", "best:val_loss", "best:val_rmean"),
}

# The values that numbers and pairs of numbers may have. RANDAUGMENT_MOST are the limits of our
# RandAugment: number of operations, and magnitude (data/images/randaugment.py).
_WITHIN = {
    "lr": "(0, 1e30]",  # beyond it, the arithmetic of optimizers overflows
    "min_lr": "[0, 1e30]",
    "weight_decay": "[0, 1e30]",
    "eps": "(0, inf)",
    "momentum": "[0, 1)",
    "clip_norm": "(0, inf)",
    "warmup": "[0, 1)",
    "patience": "[0, inf)",
    "epochs": "[1, inf)",
    "steps": "[1, inf)",
    "batch_size": "[1, inf)",
    "micro_batch": "[1, inf)",
    "text_length": "[1, inf)",
    "image_size": "[1, inf)",
    "mask_share": "[0, 1)",
    "betas": "[0, 1)",
    "crop_scale": "(0, 1]",
}
RANDAUGMENT_MOST = (14, 10)

_GOES_WITH = (
    GoesWith("crop_scale", "crop", ("random",)),
    GoesWith("patience", "schedule", ("plateau",)),
    GoesWith("min_lr", "schedule", ("cosine", "plateau")),
    GoesWith("momentum", "optimizer", ("sgd",)),
    GoesWith("betas", "optimizer", ("adamw", "adam", "lamb")),
    GoesWith("eps", "optimizer", ("adamw", "adam", "lamb")),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one train-step, apart from its methods' own hyper-parameters."""

    model: str = ""
    pretrained: str | None = None
    temperature: str | None = None
    text_length: int | None = None
    optimizer: str = "adamw"
    lr: float = 1e-4
    min_lr: float = 0.0
    weight_decay: float = 0.05
    decay: str = "weights"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.9
    clip_norm: float | None = None
    schedule: str = "cosine"
    warmup: float = 0.0
    patience: int = 1
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 64
    micro_batch: int | None = None
    precision: str = "fp32"
    replay: str = "union"
    captions: str = "one"
    base_loss: str = "mean"
    negatives: str = "all"
    image_size: int | None = None
    crop: str = "center"
    crop_scale: tuple[float, float] = (0.2, 1.0)
    flip: bool = False
    randaugment: tuple[int, int] | None = None
    jpeg_decode: str = EXACT
    keep: str = "last"
    blend_buffers: bool = False
    mask_share: float = 0.15
    masking: str = "bert"
    heads: str | None = None  # None: as in the model's configuration
    scale_per_step: str | None = None  # the steps that shares per step were chosen for, or "paper"


# The settings of the model itself, which a previous checkpoint decides, and their origin then.
OF_MODEL = ("model", "pretrained", "temperature", "text_length", "image_size", "heads")
PREVIOUS = "previous"

SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))


def configuration(
    settings: Settings, origins: Mapping[str, str], methods: Sequence[Method]
) -> Iterator[tuple[str, Any, str]]:
    """(name, value, origin) of every setting and hyper-parameter, for --dry-run."""
    for name in SETTINGS:
        yield name, getattr(settings, name), origins.get(name, "default")
    for method in methods:
        for field in dataclasses.fields(method):
            value = getattr(method, field.name)
            yield (
                f"{method.name}.{field.name}",
                value,
                field.metadata["origin"] if value == field.default else "flag",
            )


def resolve(
    preset_name: str, flags: Mapping[str, Any], inherited: Mapping[str, Any]
) -> tuple[Settings, dict[str, str]]:
    """The settings, and the origin of each value.

    A value from a flag wins over one from the methods (`inherited`), that over the preset's, and
    that over the default. Raises UsageError for a value that is not allowed.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    for name, value in preset(preset_name).items():
        values[name] = value
        origins[name] = f"preset {preset_name}{source_of(preset_name, name)}"
    for source, given in (("method", inherited), ("flag", flags)):
        for name, value in given.items():
            values[name] = value
            origins[name] = source
    settings = Settings(**values)
    _check(settings)
    return settings, origins


def _check(settings: Settings) -> None:
    for name, choices in CHOICES.items():
        value = getattr(settings, name)
        if value is not None and value not in choices:
            raise UsageError(
                f"--{name.replace('_', '-')} {value!r} is not one of {', '.join(choices)}"
            )
    for name, interval in _WITHIN.items():
        _check_number(name, getattr(settings, name), interval)
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
    replay_share(settings.replay)
    if settings.scale_per_step is not None:
        parse_scale(settings.scale_per_step)


def _check_number(name: str, value: Any, interval: str) -> None:
    """Raise UsageError unless a number, or each number of a pair, is in the interval."""
    numbers = value if isinstance(value, tuple) else () if value is None else (value,)
    for number in numbers:
        if not lies_within(number, interval):
            is_bounded = "inf" not in interval
            finite = "" if is_bounded or math.isfinite(number) else " and finite"
            raise UsageError(
                f"--{name.replace('_', '-')} must be {in_words(interval)}{finite}, not {number}"
            )


def in_words(interval: str) -> str:
    """An interval as words for a message.

    >>> in_words("(0, inf)"), in_words("[0, 1)")
    ('above 0', 'at least 0 and below 1')
    """
    low, high = interval[1:-1].split(", ")
    words = f"{'above' if interval[0] == '(' else 'at least'} {low}"
    if high == "inf":
        return words
    return f"{words} and {'below' if interval[-1] == ')' else 'at most'} {high}"


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


def replay_share(replay: str) -> float | None:
    """Parse `--replay`: the share of each batch from the buffer; None if shuffled with the tasks.

    Raises UsageError for anything but `union` and `share=X`.

    >>> replay_share("share=0.5"), replay_share("union")
    (0.5, None)
    """
    if replay == "union":
        return None
    name, _, text = replay.partition("=")
    try:
        share = parse_number(text)
    except ValueError:
        share = -1.0
    if name != "share" or not 0 < share < 1:
        raise UsageError(f"--replay {replay!r} is neither 'union' nor 'share=X' with 0 < X < 1")
    return share


def refuse_idle_settings(settings: Settings, origins: Mapping[str, str]) -> None:
    """Raise UsageError for a flag that has no effect with the other settings.

    Only flags count: a preset may set a value that has no effect with another flag.
    """
    flags = [name for name, origin in origins.items() if origin == "flag"]
    refuse_idle(_GOES_WITH, vars(settings), flags)
    if "decay" in flags and not settings.weight_decay:
        raise UsageError("--decay has no effect with --weight-decay 0")
    if "epochs" in flags and "steps" in flags:
        raise UsageError("--epochs has no effect with --steps: both set the length; give one")
