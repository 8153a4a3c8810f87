"""What every method declares, checked without training. Torch-free."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from vlcpctl.core.errors import VlcpError
from vlcpctl.core.method import TRAIN, Method
from vlcpctl.core.options import lies_within
from vlcpctl.data.buffer.policies import POLICIES
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.training.methods import compose
from vlcpctl.training.presets import names
from vlcpctl.training.settings import SETTINGS


def broken_laws(method: type[Method], registry: MethodRegistry | None = None) -> list[str]:
    """A line for everything that a method declares wrongly; empty if all is well.

    `registry` finds the method by its name; it is needed for one of a --method-file.
    """
    laws = (_of_class, _of_hyper_parameters, _of_papers, _of_inputs, _of_phases)
    found = [line for law in laws for line in law(method)]
    return found + list(_of_command_line(method, registry or MethodRegistry()))


def _of_class(method: type[Method]) -> Iterator[str]:
    for name in ("name", "title", "preset"):
        if not getattr(method, name, None):
            yield f"{name} is missing"
    if "\n" in method.title or method.title.endswith("."):
        yield f"title {method.title!r} is not one line without a full stop"
    if method.preset not in names():
        yield f"preset {method.preset!r} is unknown (known: {', '.join(names())})"
    unknown = [name for name in method.settings if name not in SETTINGS]
    if unknown:
        yield f"settings has {', '.join(unknown)}, which train-step does not have"


def _of_hyper_parameters(method: type[Method]) -> Iterator[str]:
    for field in dataclasses.fields(method):
        about: Mapping[str, Any] = field.metadata
        default: Any = field.default
        for name in ("help", "origin"):
            if not about.get(name, "").strip():
                yield f"hyper-parameter {field.name} has no {'doc' if name == 'help' else name}"
        if about["within"] and not lies_within(default, about["within"]):
            yield f"the default of {field.name}, {default}, is not within {about['within']}"
        if about["choices"] and default not in about["choices"]:
            yield f"the default of {field.name}, {default!r}, is not one of its choices"
        if about["depends"] and ": " not in about["depends"]:
            yield f"depends of {field.name} is not of the form 'what: how'"


def _of_papers(method: type[Method]) -> Iterator[str]:
    for paper in method.papers:
        for name in ("title", "authors", "venue", "url"):
            if not getattr(paper, name):
                yield f"a paper lacks its {name}"
        if not 1900 < paper.year < 2100:
            yield f"a paper is of the year {paper.year}"


def _of_inputs(method: type[Method]) -> Iterator[str]:
    default = method()
    at_first = default.needs(first=True)
    if at_first.buffer or at_first.previous or at_first.reference:
        yield "needs(first=True) requires what a first task does not have"
    for policy in {default.needs(first=False).policy, method.usual_policy} - {""}:
        if policy not in POLICIES:
            yield f"buffer policy {policy!r} is unknown (known: {', '.join(POLICIES)})"
    names = {field.name for field in dataclasses.fields(method)}
    unknown = [name for name in default.per_step(first=False) if name not in names]
    if unknown:
        yield f"per_step names {', '.join(unknown)}, which are not hyper-parameters"


def _of_phases(method: type[Method]) -> Iterator[str]:
    for first in (True, False):
        phases, slots = method().phases(first=first), method().slots(first=first)
        names = [slot.name for slot in slots]
        if TRAIN.name not in [phase.name for phase in phases]:
            yield f"no phase is named {TRAIN.name!r} (first={first})"
        if len(set(names)) < len(names):
            yield f"two slots have the same name (first={first})"
        for wanted in {phase.weights for phase in phases} - {"", *names}:
            yield f"a phase trains the slot {wanted!r}, which is not declared (first={first})"
    kept = [slot.name for slot in method().slots(first=False)]
    if method.keeps and method.keeps not in kept:
        yield f"keeps names the slot {method.keeps!r}, which is not declared"


def _of_command_line(method: type[Method], registry: MethodRegistry) -> Iterator[str]:
    """Defaults given with --set, and the assignments that turn the method off, can be parsed."""
    name = method.name
    values = {field.name: _text(field.default) for field in dataclasses.fields(method)}
    try:
        found = compose(name, [f"{name}.{one}={text}" for one, text in values.items()], registry)
        if found != (method(),):
            yield "its defaults given with --set make another method"
        compose(name, [f"{name}.{one}" for one in method.off], registry)
    except VlcpError as error:
        yield f"{error}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
