"""The values of options and arguments: from the command line or the environment, converted.

typer would convert them with pydantic, whose import takes 0.2 s in every command, and would report
mistakes in pydantic's words.
"""

from __future__ import annotations

import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

from vlcpctl.commands import COMMANDS
from vlcpctl.commands.paths import TEXTS, is_path, may_be_stored, refuse_url
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError, nearest
from vlcpctl.core.words import parse_number, parse_whole_number, printable
from vlcpctl.production.hook_variables import OF_HOOKS

NONE = "none"  # takes an option that is remembered back to its default
_FALSE = frozenset({"0", "false", "no", "off", "n", "f"})
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})
_PROGRAM = "VLCPCTL_"
_OTHERS = ("VLCPCTL_DEBUG",)  # variables that belong to no option
_warned: set[str] = set()  # lines of `batch` are forked, and inherit it


def arguments(
    command: str, run: Callable[..., Any], parameters: Iterable[Any], given: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Each of typer's `parameters` of a command, whose function is `run`, with its value.

    `given` has the words of the command line by the parameters' names. What is not given has the
    value of its variable, or its default. Values are converted to the types of the annotations, but
    for NONE of an option that `run.resettable` names.
    Raises UsageError for one that is missing or does not fit.
    """
    declared = inspect.signature(run, eval_str=True).parameters
    for parameter in parameters:
        name, words = _shown_name(parameter), given.get(parameter.name)
        if words in (None, ()) and parameter.param_type_name == "option":
            words = _from_environment(parameter, variable_of(parameter, command))
            name = variable_of(parameter, command) if words is not None else name
        one = declared[parameter.name]
        if words == NONE and one.name in getattr(run, "resettable", ()):
            yield parameter, NONE
        elif words not in (None, ()):
            kind, information = kind_of(one.annotation)
            try:
                _refuse_urls(command, one.name, kind, words)
                value = _converted(information, kind, words)
            except ValueError as error:
                raise UsageError(f"{name}: {error}") from error
            yield parameter, value
        elif one.default is one.empty:
            raise UsageError(f"{name} is missing; see 'vlcpctl {command} --help'")
        else:
            yield parameter, one.default


def variable_of(parameter: Any, command: str) -> str:
    """The environment variable of an option, such as VLCPCTL_TRAIN_STEP_SET for --set."""
    option = _shown_name(parameter).lstrip("-")
    return f"{_prefix_of(command)}_{option.replace('-', '_').upper()}"


def warn_of_unknown(command: str, known: Collection[str]) -> None:
    """Warn of every VLCPCTL_ variable that sets nothing, naming the nearest one that exists.

    `known` are the variables of the command that runs. Variables of other commands are checked when
    those run.
    """
    prefixes = [_prefix_of(one) for one in COMMANDS]
    names = [name for name in os.environ if name.startswith(_PROGRAM) and os.environ[name]]
    for name in sorted(names):
        if name in {*known, *_OTHERS, *OF_HOOKS} or name in _warned:
            continue
        # VLCPCTL_CHECK_X could belong to `check` or to a longer name: the longest one counts.
        owner = max((one for one in prefixes if name.startswith(f"{one}_")), key=len, default=None)
        if owner not in {None, _prefix_of(command)}:
            continue
        _warned.add(name)
        near = nearest(name, [*known, *_OTHERS], cutoff=0.75)
        guess = f"; did you mean {near}?" if near else ""
        console.warn(f"the environment variable {printable(name)} has no effect{guess}")


def run_name(text: str) -> str:
    """The name of a run, for --run.

    Raises ValueError for a name that is empty, starts or ends with a space, or has characters that
    do not print.
    """
    if not text.strip():
        raise ValueError("the name is empty")
    if text != text.strip():
        raise ValueError(f"{text!r} starts or ends with a space")
    if printable(text) != text:
        raise ValueError(f"'{printable(text)}' contains characters that cannot be printed")
    return text


def kind_of(annotation: Any) -> tuple[Any, Any]:
    """The Python type of an annotated parameter without None, and typer's information about it."""
    information = None
    if get_origin(annotation) is typing.Annotated:
        annotation, information, *_ = get_args(annotation)
    if get_origin(annotation) in {typing.Union, types.UnionType}:
        (annotation,) = (one for one in get_args(annotation) if one is not types.NoneType)
    return annotation, information


def _refuse_urls(command: str, parameter: str, kind: Any, words: Any) -> None:
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    if is_path(parameter, kind):
        for one in [words] if isinstance(words, str) else words:
            if not may_be_stored(command, parameter, one):
                refuse_url(one, command)


def _converted(information: Any, kind: Any, words: Any) -> Any:
    """The words as values of the type `kind`; raises ValueError if one does not fit."""
    if get_origin(kind) is list:
        return [_converted(information, get_args(kind)[0], one) for one in words]
    if isinstance(words, bool):
        return words  # a switch of the command line
    if not words:
        raise ValueError("the value is empty (an unset shell variable gives an empty value)")
    if getattr(information, "parser", None) is not None:
        return information.parser(words)
    if kind in (int, float):
        found = parse_whole_number(words) if kind is int else parse_number(words)
        _check_range(found, information)
        return found
    return _boolean(words) if kind is bool else kind(words)


def _check_range(value: float, information: Any) -> None:
    least, most = getattr(information, "min", None), getattr(information, "max", None)
    if least is not None and value < least:
        raise ValueError(f"{value} is too small; it must be at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{value} is too large; it must be at most {most}")


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"'{printable(text)}' is neither true nor false")
    return word in _TRUE


def _from_environment(parameter: Any, variable: str) -> Any:
    """The value of an option's variable; an empty variable counts as not set.

    The values of an option that can be repeated are separated by spaces, paths as those in PATH.
    """
    text = os.environ.get(variable, "")
    if not text.strip():
        return None
    if not parameter.multiple:
        return text
    if parameter.name in TEXTS or parameter.metavar in {"DIR", "FILE", "PATH"}:
        # A URL is refused in whole: s3 and //bucket/run would be two paths that do not exist.
        return [one for one in re.split(f"{re.escape(os.pathsep)}(?!//)", text) if one]
    return text.split()


def _prefix_of(command: str) -> str:
    """The start of the names of a command's variables.

    >>> _prefix_of("train-step")
    'VLCPCTL_TRAIN_STEP'
    """
    return _PROGRAM + command.replace("-", "_").upper()


def _shown_name(parameter: Any) -> str:
    """The name of a parameter in messages: --lr, or TASK for an argument."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper())
