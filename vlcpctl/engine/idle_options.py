"""Refuse options that would have no effect."""

from __future__ import annotations

from collections.abc import Mapping

from vlcpctl.core.errors import UsageError
from vlcpctl.engine.request import Request
from vlcpctl.engine.settings import Settings

# The settings that have an effect only with some values of another setting.
_GOES_WITH = {
    "crop_scale": ("crop", ("random",)),
    "patience": ("schedule", ("plateau",)),
    "min_lr": ("schedule", ("cosine", "plateau")),
    "momentum": ("optimizer", ("sgd",)),
    "betas": ("optimizer", ("adamw", "adam", "lamb")),
    "eps": ("optimizer", ("adamw", "adam", "lamb")),
}


def refuse_idle_settings(settings: Settings, origins: Mapping[str, str]) -> None:
    """Raise UsageError for a flag that has no effect with the other settings.

    Only flags count: a preset may set a value that has no effect with another flag.
    """
    for name, (other, values) in _GOES_WITH.items():
        value = getattr(settings, other)
        if origins.get(name) == "flag" and value not in values:
            flag, needed = (f"--{one.replace('_', '-')}" for one in (name, other))
            raise UsageError(
                f"{flag} has no effect with {needed} {value}: it applies only to "
                f"{needed} {' and '.join(values)}"
            )
    if origins.get("epochs") == origins.get("steps") == "flag":
        raise UsageError("--epochs has no effect with --steps: both set the length; give one")


def refuse_idle_inputs(request: Request) -> None:
    """Raise UsageError for a teacher that no method uses, and for --replay without a buffer."""
    needs = [method.needs(first=False) for method in request.methods]
    asked = any(need.previous or need.pseudo_texts for need in needs)
    held = request.previous is None and any(need.previous_weights for need in needs)
    if request.teacher is not None and not (asked or held):
        raise UsageError(
            f"--teacher has no effect with --method {request.method_name}: its current settings "
            "use no teacher"
        )
    alone = request.previous is not None and request.buffer is None
    if alone and request.origins.get("replay") == "flag":
        raise UsageError("--replay has no effect without --buffer")
