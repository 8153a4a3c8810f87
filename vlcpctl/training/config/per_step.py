"""Weights that are kept at each step, scaled to the number of steps of a run. Torch-free.

A weight w that a slow model keeps at every step keeps w^n of its start after n steps. Chosen for N
steps, w^(N / n) keeps as much over n steps: the share 1 - w that is replaced becomes
1 - (1 - share)^(N / n).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import suppress

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.words import parse_whole_number

PAPER = "paper"


def parse_scale(text: str) -> int | None:
    """Parse `--scale-per-step`: the steps that shares were chosen for; None for the paper's.

    Raises UsageError for anything but a number of steps and `paper`.

    >>> parse_scale("500"), parse_scale("paper")
    (500, None)
    """
    if text == PAPER:
        return None
    with suppress(ValueError):
        if (steps := parse_whole_number(text)) > 0:
            return steps
    raise UsageError(f"--scale-per-step {text!r} is neither 'paper' nor a number of steps")


def refuse_idle_scale(methods: Sequence[Method], text: str) -> None:
    """Raise UsageError if `--scale-per-step` has nothing to scale, or lacks a number of steps."""
    names = "+".join(method.name for method in methods)
    having = [method for method in methods if method.per_step(first=False)]
    if not having:
        raise UsageError(
            f"--scale-per-step has no effect with --method {names}: with its current settings it "
            "averages no weights at each step"
        )
    unpublished = [method for method in having if not method.steps_per_task]
    if parse_scale(text) is None and unpublished:
        method = unpublished[0]
        share = f"{method.name}.{method.per_step(first=False)[0]}"
        raise UsageError(
            f"--scale-per-step paper: no paper gives {share}; give the number of steps that it was "
            "chosen for"
        )


def scaled(
    methods: Sequence[Method], text: str | None, steps: int, *, first: bool
) -> tuple[Method, ...]:
    """The methods with their shares per step scaled to a training of `steps`.

    `text` is the value of `--scale-per-step`; None changes nothing.
    """
    if text is None:
        return tuple(methods)
    return tuple(_scaled(method, text, steps, first=first) for method in methods)


def scaled_weight(weight: float, chosen_for: int, steps: int) -> float:
    """The weight that keeps as much over `steps` as `weight` keeps over `chosen_for` steps.

    >>> scaled_weight(0.5, 20, 10), scaled_weight(0.9, 100, 100)
    (0.25, 0.9)
    """
    return float(weight ** (chosen_for / steps))


def scale_lines(
    methods: Sequence[Method], text: str | None, steps: int, *, first: bool
) -> Iterator[str]:
    """What `--scale-per-step` changes, a line per hyper-parameter, for the plan."""
    if text is None:
        return
    for method, other in zip(methods, scaled(methods, text, steps, first=first), strict=True):
        for name in method.per_step(first=first):
            yield (
                f"{method.name}.{name} {getattr(method, name):.6g} at {_chosen_for(method, text)} "
                f"steps -> {getattr(other, name):.6g} at {steps} steps"
            )
        if not method.per_step(first=first) and method.per_step(first=False):
            yield f"note: --scale-per-step changes nothing in a first task for {method.name}"


def dependence(method: Method, text: str | None, *, first: bool) -> str:
    """What the values of a method depend on that are still its defaults, for the plan; "" if none.

    Left out are those that `--scale-per-step` (`text`) scales, and shares without use in a first
    task.
    """
    left_out = set(method.per_step(first=False))
    if text is None:
        left_out -= set(method.per_step(first=first))
    names: dict[str, list[str]] = {}
    for field in dataclasses.fields(method):
        depends, value = field.metadata["depends"], getattr(method, field.name)
        if depends and value == field.default and field.name not in left_out:
            names.setdefault(depends.split(":")[0], []).append(field.name)
    parts = [f"{' and '.join(some)} on {what}" for what, some in names.items()]
    if not parts:
        return ""
    return f"good values depend on the run: {'; '.join(parts)} ('vlcpctl methods {method.name}')"


def _scaled(method: Method, text: str, steps: int, *, first: bool) -> Method:
    chosen_for = _chosen_for(method, text)
    values = {
        name: scaled_weight(getattr(method, name), chosen_for, steps)
        for name in method.per_step(first=first)
    }
    return dataclasses.replace(method, **values)


def _chosen_for(method: Method, text: str) -> int:
    return parse_scale(text) or method.steps_per_task
