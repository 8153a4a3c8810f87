"""Refuse options that a command would take and do nothing with."""

from __future__ import annotations

from collections.abc import Mapping

from vlcpctl.core.errors import UsageError
from vlcpctl.engine.request import Request
from vlcpctl.engine.settings import Settings

# What a setting takes effect with: another setting and its values.
_GOES_WITH = {
    "crop_scale": ("crop", ("random",)),
    "patience": ("schedule", ("plateau",)),
    "min_lr": ("schedule", ("cosine", "plateau")),
    "momentum": ("optimizer", ("sgd",)),
    "betas": ("optimizer", ("adamw", "adam", "lamb")),
    "eps": ("optimizer", ("adamw", "adam", "lamb")),
}


def refuse_idle_settings(settings: Settings, origins: Mapping[str, str]) -> None:
    """Refuse flags that another setting leaves without effect."""
    for name, (other, values) in _GOES_WITH.items():
        value = getattr(settings, other)
        if origins.get(name) == "flag" and value not in values:
            flag, needed = (f"--{one.replace('_', '-')}" for one in (name, other))
            raise UsageError(
                f"{flag} has no effect with {needed} {value}; it is of {' and '.join(values)}"
            )
    if origins.get("epochs") == origins.get("steps") == "flag":
        raise UsageError("--epochs has no effect with --steps; give one of them")


def refuse_idle_inputs(request: Request) -> None:
    """Refuse a teacher that no method asks, and a replay of nothing."""
    needs = [method.needs(first=False) for method in request.methods]
    asked = any(need.previous or need.pseudo_texts for need in needs)
    held = request.previous is None and any(need.previous_weights for need in needs)
    if request.teacher is not None and not (asked or held):
        raise UsageError(
            f"--teacher has no effect on --method {request.method_name}: as it is set, it asks none"
        )
    alone = request.previous is not None and request.buffer is None
    if alone and request.origins.get("replay") == "flag":
        raise UsageError("--replay has no effect without --buffer")
