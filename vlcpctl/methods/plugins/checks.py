"""Checks of a class from outside, before and while training relies on it. Torch-free.

What a method's class overrides is wrapped when it is loaded: what it raises becomes one line that
names the file, the lines of it that led there, the class and the function, and so does a loss that
would train nothing. The traceback is shown with --debug.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from vlcpctl.core.errors import BadInput, VlcpError, first_line, some_names
from vlcpctl.core.machine import is_about_limits
from vlcpctl.core.method import HOOKS, Method, hyper

# What a method declares, with an example of each.
OF_A_METHOD = {
    "name": '"mine"',
    "title": '"What it does, in one line"',
    "preset": '"ctp", the training budget of runs without --preset',
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # + joins names, and . and = end one in --set
_KEYS = frozenset(hyper(0, doc="", origin="").metadata)  # as `hyper` sets them
_GUARDED = {*HOOKS, "needs", "per_step", "slots", "phases"}
_MARK = "vlcpctl_guarded"


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


def guard_hooks(method: type[Method]) -> None:
    """Wrap what a class overrides, in place."""
    for owner in method.__mro__:
        if not issubclass(owner, Method) or owner.__module__.partition(".")[0] == "vlcpctl":
            continue
        for name, function in list(vars(owner).items()):
            is_own = isinstance(function, FunctionType) and not hasattr(function, _MARK)
            if name in _GUARDED and is_own:
                setattr(owner, name, _guarded(function, name, f"{owner.__qualname__}.{name}"))


def _guarded(function: FunctionType, name: str, shown: str) -> Callable[..., Any]:
    """A hook as training calls it: a loss always with values for `after_step`, maybe none."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        found = function(*arguments, **named)
        if name == "slots":
            return tuple(
                dataclasses.replace(one, start=in_one_line(one.start, function, f"slot {one.name}"))
                for one in found
            )
        if name == "loss" and not isinstance(found, tuple):
            found = found, {}
        if name in {"loss", "token_loss"}:
            terms, *_ = found if name == "loss" else (found,)
            _require_terms(f"{start_of(function)}: {shown}", terms)
        return found

    guarded = in_one_line(call, function, shown)
    setattr(guarded, _MARK, True)
    return guarded


def in_one_line(called: Callable[..., Any], owner: FunctionType, shown: str) -> Callable[..., Any]:
    """A call whose mistakes are one line, with the lines of the file of `owner` that led there."""
    file = inspect.unwrap(owner).__code__.co_filename

    @functools.wraps(called)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return called(*arguments, **named)
        except VlcpError:
            raise
        except (Exception, SystemExit) as error:  # of whatever kind: the code is the user's
            if isinstance(error, Exception) and is_about_limits(error):
                raise
            frames = traceback.extract_tb(error.__traceback__)
            *outer, line = [str(one.lineno) for one in frames if one.filename == file] or [""]
            place = f"{file}:{line}" if line else start_of(owner)
            place += f", from line {some_names(outer)}" if outer else ""
            kind, text = type(error).__name__, first_line(error)
            reason = kind if text in {"", kind} else f"{kind}: {text}"
            raise BadInput(f"{place}: {shown}: {reason}") from error

    return call


def _require_terms(shown: str, terms: Mapping[str, Any]) -> None:
    """Raise BadInput unless terms are single numbers, one with a gradient; 0 may be a constant."""
    for term, value in terms.items():
        if getattr(value, "shape", None) != ():
            raise BadInput(f"{shown}: term {term!r} must be a tensor of one number")
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return
    if any(value.requires_grad for value in terms.values()):
        return
    constant = [name for name, value in terms.items() if math.isfinite(n := value.item()) and n]
    if constant:
        raise BadInput(
            f"{shown}: term {constant[0]!r} has no gradient, so that it would train nothing: it is "
            "computed without the model's outputs, or after detach(), item() or under no_grad()"
        )


def start_of(function: FunctionType) -> str:
    """The file and first line of a function, below its decorators."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
