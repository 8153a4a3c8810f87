"""Mistakes in the code of a method from outside become one line. Torch-free.

What such a class overrides is wrapped when the class is loaded: what it raises is an error that
names the file, the line, the class and the function, and so is a loss that would train nothing. The
traceback is shown with --debug.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

from vlcpctl.core.errors import BadInput, VlcpError, first_line, some_names
from vlcpctl.core.machine import is_about_limits
from vlcpctl.core.method import HOOKS, Method

_GUARDED = {*HOOKS, "needs", "per_step", "shape_note", "shape_warning", "slots", "phases"}
_MARK = "vlcpctl_guarded"


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
            starts = [f"the start of slot {one.name!r}" for one in found]
            return tuple(
                replace(one, start=in_one_line(one.start, function, start))
                for one, start in zip(found, starts, strict=True)
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
    """A call whose mistakes are one line about the file of `owner`."""

    @functools.wraps(called)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return called(*arguments, **named)
        except VlcpError:
            raise
        except (Exception, SystemExit) as error:  # of whatever kind: the code is the user's
            if isinstance(error, Exception) and is_about_limits(error):
                raise
            kind, text = type(error).__name__, first_line(error)
            reason = kind if text in {"", kind} else f"{kind}: {text}"
            raise BadInput(f"{_place_of(error, owner)}: {shown}: {reason}") from error

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


def _place_of(error: BaseException, function: FunctionType) -> str:
    """Where in the user's file an error was raised, and the lines of it that led there."""
    file, frames = _code_of(function).co_filename, traceback.extract_tb(error.__traceback__)
    lines = [str(one.lineno) for one in frames if one.filename == file]
    if not lines:
        return start_of(function)
    *outer, line = lines
    return f"{file}:{line}{f', from line {some_names(outer)}' if outer else ''}"


def start_of(function: FunctionType) -> str:
    """The file and first line of a function."""
    code = _code_of(function)
    return f"{code.co_filename}:{code.co_firstlineno}"


def _code_of(function: FunctionType) -> CodeType:
    """The code of a function, below its decorators."""
    inner = inspect.unwrap(function)
    return (inner if isinstance(inner, FunctionType) else function).__code__
