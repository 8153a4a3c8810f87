"""Mistakes in the hooks of a method from outside become one line. Torch-free.

Every hook that such a class defines is wrapped when the class is loaded: what it raises, and what
it returns that training cannot use, is an error that names the file, the class and the hook. The
traceback is shown with --debug.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vlcpctl.core.errors import BadInput, VlcpError, first_line, unknown_name
from vlcpctl.core.method import HOOKS, Method, Part, Run
from vlcpctl.core.resource_limits import is_about_limits

_OURS = "vlcpctl"
_MADE_BY_US: dict[str, type] = {"run": Run, "part": Part}  # protocols of arguments, by their names


def guard_hooks(method: type[Method]) -> None:
    """Wrap the hooks that a class defines, in place.

    Raises BadInput if one does not take the arguments that training gives.
    """
    for owner in method.__mro__:
        if owner.__module__.partition(".")[0] == _OURS or not issubclass(owner, Method):
            continue
        for hook in HOOKS:
            function = vars(owner).get(hook)
            if inspect.isfunction(function) and not hasattr(function, "__wrapped__"):
                _require_arguments(owner, hook, function)
                setattr(owner, hook, _guarded(owner, hook, function))


def _require_arguments(owner: type[Method], hook: str, function: Callable[..., Any]) -> None:
    """Raise BadInput unless a hook can be called as the base class declares it."""
    wanted = inspect.signature(getattr(Method, hook)).parameters.values()
    by_place = [one.name for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_name = {one.name: None for one in wanted if one.kind is one.KEYWORD_ONLY}
    try:
        inspect.signature(function).bind(*by_place, **by_name)
    except TypeError as error:
        takes = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
        place = f"{_file_of(function)}:{function.__code__.co_firstlineno}"
        raise BadInput(
            f"{place}: {owner.__qualname__}.{hook} must take ({takes}), not "
            f"({', '.join(inspect.signature(function).parameters)})"
        ) from error


def _guarded(owner: type[Method], hook: str, function: Callable[..., Any]) -> Callable[..., Any]:
    name = f"{owner.__qualname__}.{hook}"

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        try:
            found = function(*arguments, **named)
        except VlcpError:
            raise
        except Exception as error:
            if is_about_limits(error):
                raise
            said = _reason(error, inspect.signature(function).bind(*arguments, **named).arguments)
            raise BadInput(f"{_place_of(error, function)}: {name}: {said}") from error
        return _checked(f"{_file_of(function)}: {name}", hook, found)

    return guarded


def _checked(name: str, hook: str, found: Any) -> Any:
    """What a hook has returned, as training takes it. Raises BadInput if it cannot be used."""
    if hook == "loss":
        pair = (found, {}) if isinstance(found, Mapping) else found
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Mapping)):
            raise BadInput(
                f"{name} must return the terms by name, or (terms, values), not {_kind(found)}"
            )
        _require_terms(name, pair[0])
        return pair
    if hook == "token_loss":
        if not isinstance(found, Mapping):
            raise BadInput(f"{name} must return the terms by name, not {_kind(found)}")
        _require_terms(name, found)
    return found


def _require_terms(name: str, terms: Mapping[str, Any]) -> None:
    for term, value in terms.items():
        shape = getattr(value, "shape", None)
        if shape is None:
            raise BadInput(f"{name}: term {term!r} must be a tensor, not {_kind(value)}")
        if len(shape):
            sizes = " x ".join(map(str, shape))
            raise BadInput(f"{name}: term {term!r} must be one number, not a tensor of {sizes}")


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _reason(error: Exception, arguments: Mapping[str, Any]) -> str:
    """The kind and message of an error; of an attribute that an argument lacks, what it has."""
    if isinstance(error, AttributeError) and error.name:
        for name, value in arguments.items():
            if value is error.obj:
                known = set(_public_names(_MADE_BY_US.get(name, type(value)), value))
                return unknown_name(f"attribute of {name}:", error.name, known)
    kind, text = type(error).__name__, first_line(error)
    return kind if text == kind else f"{kind}: {text}"


def _public_names(kind: type, value: Any) -> Iterator[str]:
    yield from (one for one in dir(kind) if not one.startswith("_"))
    if kind is type(value):
        yield from (one for one in vars(value) if not one.startswith("_"))


def _place_of(error: Exception, function: Callable[..., Any]) -> str:
    """The file and line of the user's code where an error was raised, or that led to it."""
    file, frames = _file_of(function), traceback.extract_tb(error.__traceback__)
    lines = [one.lineno for one in frames if one.filename == file]
    return f"{file}:{lines[-1] if lines else function.__code__.co_firstlineno}"


def _file_of(function: Callable[..., Any]) -> str:
    return function.__code__.co_filename
