"""Mistakes in the code of a method from outside become one line. Torch-free.

What such a class overrides is wrapped when the class is loaded: what it raises, and what it returns
that training cannot use, is an error that names the file, the class and the function. The traceback
is shown with --debug.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

from vlcpctl.core.errors import (
    BadInput,
    VlcpError,
    first_line,
    nearest,
    some_names,
    unknown_name,
)
from vlcpctl.core.machine import is_about_limits
from vlcpctl.core.method import HOOKS, Method, Needs, Part, Phase, Run, Slot

_OURS = "vlcpctl"
_DECLARING = ("needs", "per_step", "shape_note", "shape_warning", "slots", "phases")
_GUARDED = (*HOOKS, *_DECLARING)
_TUPLES: dict[str, type] = {"slots": Slot, "phases": Phase, "per_step": str}
_ONE: dict[str, type] = {"needs": Needs, "shape_note": str, "shape_warning": str}
_PROTOCOLS: dict[str, type] = {"run": Run, "part": Part}  # of arguments, by their names
_MARK = "vlcpctl_guarded"
_ALIKE = 0.8  # least similarity of a misspelt name


def guard_hooks(method: type[Method]) -> None:
    """Wrap what a class overrides, in place.

    Raises BadInput if a function does not take the arguments that training gives, or has a name
    that is hardly another than that of a hook which the class does not override.
    """
    owners = [one for one in method.__mro__ if issubclass(one, Method) and not _is_ours(one)]
    overridden = {name for owner in owners for name in vars(owner)}
    for owner in owners:
        for name, function in list(vars(owner).items()):
            if not isinstance(function, FunctionType) or hasattr(function, _MARK):
                continue
            if name in _GUARDED:
                _require_arguments(owner, name, function)
                setattr(owner, name, _guarded(owner, name, function))
            elif not name.startswith("_"):
                _refuse_misspelt(owner, name, function, overridden)
    _require_a_hook(method, owners)


def _require_a_hook(method: type[Method], owners: list[type[Method]]) -> None:
    """Raise BadInput if a class has functions, and training calls none of them."""
    extends_ours = any(_is_ours(one) and one is not Method for one in method.__mro__[:-1])
    own = [
        value
        for owner in owners
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType) and not name.startswith("__")
    ]
    # A hook may come from a class that is not a Method, such as a mixin.
    has_a_hook = any(getattr(method, name) is not getattr(Method, name) for name in _GUARDED)
    if own and not extends_ours and not has_a_hook:
        raise BadInput(
            f"{start_of(own[0])}: {method.__qualname__} trains as seqf does: nothing calls "
            f"{own[0].__name__}, which is not a hook; the hooks are {some_names(HOOKS)}"
        )


def _is_ours(owner: type) -> bool:
    return owner.__module__.partition(".")[0] == _OURS


def _refuse_misspelt(
    owner: type[Method], name: str, function: FunctionType, overridden: set[str]
) -> None:
    meant = nearest(name, [one for one in _GUARDED if one not in overridden], cutoff=_ALIKE)
    if meant is not None:
        raise BadInput(
            f"{start_of(function)}: {owner.__qualname__}.{name} is never called; did you mean "
            f"{meant}? A function of the class that is no hook may begin with _"
        )


def _require_arguments(owner: type[Method], name: str, function: FunctionType) -> None:
    """Raise BadInput unless a function can be called as the base class declares it."""
    wanted = inspect.signature(getattr(Method, name))
    found = inspect.signature(function)
    by_place = [one for one in wanted.parameters.values() if one.kind is not one.KEYWORD_ONLY]
    by_name = dict.fromkeys(wanted.parameters.keys() - {one.name for one in by_place})
    said = (
        f"{start_of(function)}: {owner.__qualname__}.{name} must take {_names_of(wanted)}, "
        f"not {_names_of(found)}"
    )
    try:
        found.bind(*by_place, **by_name)
    except TypeError as error:
        raise BadInput(said) from error
    # Names of one's own are fine, but not these in another order.
    given = list(found.parameters)[: len(by_place)]
    known = [one.name for one in by_place]
    if given != known and set(given) == set(known):
        raise BadInput(said)


def _names_of(signature: inspect.Signature) -> str:
    """The parameters without types: "(self, *, first)"."""
    bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _guarded(owner: type[Method], name: str, function: FunctionType) -> Callable[..., Any]:
    shown = f"{owner.__qualname__}.{name}"
    called = in_one_line(function, function, shown)

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        found = _checked(f"{start_of(function)}: {shown}", name, called(*arguments, **named))
        if name != "slots":
            return found
        return tuple(
            replace(one, start=in_one_line(one.start, function, f"the start of slot {one.name!r}"))
            for one in found
        )

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
            given = _given(called, arguments, named)
            raise BadInput(
                f"{_place_of(error, owner)}: {shown}: {_reason(error, given)}"
            ) from error

    return call


def _given(
    called: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments of a call by their names; none if it does not take them."""
    try:
        return inspect.signature(called).bind(*arguments, **named).arguments
    except (TypeError, ValueError):
        return {}


def _checked(shown: str, name: str, found: Any) -> Any:
    """What a function has returned, as training takes it. Raises BadInput if it cannot be used."""
    if name in _ONE and not isinstance(found, _ONE[name]):
        raise BadInput(f"{shown} must return {_ONE[name].__name__}, not {_kind(found)}")
    if name in _TUPLES:
        kind = _TUPLES[name]
        if not isinstance(found, tuple) or not all(isinstance(one, kind) for one in found):
            raise BadInput(f"{shown} must return a tuple of {kind.__name__}, not {_kind(found)}")
        for one in found if kind is Slot else ():
            if one.lifetime not in {"task", "stream"}:
                raise BadInput(
                    f"{shown}: the lifetime of slot {one.name!r} must be 'task' or 'stream', not "
                    f"{one.lifetime!r}"
                )
    if name == "after_reference" and not _is_pair_of_maps(found):
        raise BadInput(f"{shown} must return (terms, gradients), both by name, not {_kind(found)}")
    if name in {"loss", "token_loss"}:
        return _checked_terms(shown, name, found)
    return found


def _is_pair_of_maps(found: Any) -> bool:
    is_pair = isinstance(found, tuple) and len(found) == 2
    return is_pair and all(isinstance(one, Mapping) for one in found)


def _checked_terms(shown: str, name: str, found: Any) -> Any:
    """The terms of `token_loss`, and those of `loss` with values for `after_step`, maybe none."""
    is_pair = name == "loss" and not isinstance(found, Mapping)
    pair = found if is_pair else (found, {})
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Mapping)):
        also = ", or (terms, values)" if name == "loss" else ""
        raise BadInput(f"{shown} must return the terms by name{also}, not {_kind(found)}")
    for term, value in pair[0].items():
        shape = getattr(value, "shape", None)
        if shape is None:
            raise BadInput(f"{shown}: term {term!r} must be a tensor, not {_kind(value)}")
        if len(shape):
            sizes = " x ".join(map(str, shape))
            raise BadInput(f"{shown}: term {term!r} must be one number, not a tensor of {sizes}")
    _require_gradient(shown, pair[0])
    beside = pair[1].values() if isinstance(pair[1], Mapping) else ()
    if name == "loss" and not pair[0] and any(map(_is_term, beside)):
        raise BadInput(
            f"{shown} returns no term, but values that have a gradient: the terms come first, as "
            "in (terms, values)"
        )
    return pair if name == "loss" else found


def _require_gradient(shown: str, terms: Mapping[str, Any]) -> None:
    """Raise BadInput if no term has a gradient, while a loss is computed; 0 may be a constant."""
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


def _is_term(value: Any) -> bool:
    """Whether a value looks like a term: one number with a gradient."""
    return getattr(value, "shape", None) == () and getattr(value, "requires_grad", False)


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}" if value else "an empty tuple"
    return "None" if value is None else f"a {type(value).__name__}"


def _reason(error: BaseException, arguments: Mapping[str, Any]) -> str:
    """The kind and message of an error; of an attribute that an argument lacks, what it has."""
    if isinstance(error, AttributeError) and error.name:
        for name, value in arguments.items():
            if value is error.obj:
                known = set(_public_names(_PROTOCOLS.get(name, type(value)), value))
                return unknown_name(f"attribute of {name}:", error.name, known)
    kind, text = type(error).__name__, first_line(error)
    if text == kind:  # a bare assert says nothing but its line
        frames = traceback.extract_tb(error.__traceback__)
        text = frames[-1].line or "" if frames else ""
    return f"{kind}: {text}" if text else kind


def _public_names(kind: type, value: Any) -> Iterator[str]:
    yield from (one for one in dir(kind) if not one.startswith("_"))
    if kind is type(value):
        yield from (one for one in vars(value) if not one.startswith("_"))


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
