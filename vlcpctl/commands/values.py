"""The values of options and arguments: text from the command line or the environment, converted.

typer would convert them with pydantic, whose import takes 0.2 s in every command, and would report
mistakes in pydantic's words.
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args, get_origin

from vlcpctl.commands.paths import TEXTS, is_path, refuse_url
from vlcpctl.core.amounts import parse_number, parse_whole_number
from vlcpctl.core.errors import UsageError
from vlcpctl.core.printable import printable

_FALSE = frozenset({"0", "false", "no", "off", "n", "f"})
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})


def convert_here(parameters: Sequence[Any], run: Callable[..., Any], prefix: str) -> None:
    """Let typer's parameters of the command `run` convert their values with this module.

    Their types are those of the annotations of `run`. `prefix` starts the names of the environment
    variables, such as VLCPCTL_TRAIN_STEP. Raises nothing itself; the parameters raise UsageError
    when they are given a value that does not fit.
    """
    hints = typing.get_type_hints(run, include_extras=True)
    for parameter in parameters:
        if parameter.name in hints:
            kind, information = _kind_of(hints[parameter.name])
            parameter.process_value = partial(_process, parameter, kind, information)
        if parameter.param_type_name == "option" and parameter.name != "help":
            parameter.envvar = variable_of(parameter, prefix)
            parameter.allow_from_autoenv = False  # typer's name is that of the Python parameter
            parameter.value_from_envvar = partial(_from_environment, parameter)


def variable_of(parameter: Any, prefix: str) -> str:
    """The environment variable of an option, such as VLCPCTL_TRAIN_STEP_SET for --set."""
    return f"{prefix}_{_option(parameter).lstrip('-').replace('-', '_').upper()}"


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


def _kind_of(annotation: Any) -> tuple[Any, Any]:
    """The Python type of an annotated parameter without None, and typer's information about it."""
    information = None
    if get_origin(annotation) is typing.Annotated:
        annotation, information, *_ = get_args(annotation)
    if get_origin(annotation) in {typing.Union, types.UnionType}:
        (annotation,) = (one for one in get_args(annotation) if one is not types.NoneType)
    return annotation, information


def _process(parameter: Any, kind: Any, information: Any, ctx: Any, value: Any) -> Any:
    """What typer's `process_value` returns: the converted value, passed on to any callback."""
    source = ctx.get_parameter_source(parameter.name)
    from_environment = source is not None and source.name == "ENVIRONMENT"
    name = parameter.envvar if from_environment else _shown_name(parameter)
    if parameter.value_is_missing(value):
        if parameter.required:
            raise UsageError(f"{name} is missing; see '{ctx.command_path} --help'")
    elif source is None or source.name != "DEFAULT":
        convert = partial(_converted, parameter.name, information)
        try:
            if get_origin(kind) is list:
                value = [convert(get_args(kind)[0], one) for one in value]
            else:
                value = convert(kind, value)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from error
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _converted(parameter: str, information: Any, kind: Any, value: Any) -> Any:
    """A value as the type `kind`; raises ValueError if it does not fit."""
    if not isinstance(value, str):
        return value  # a default
    if not value:
        raise ValueError("the value is empty (an unset shell variable gives an empty value)")
    if is_path(parameter, kind):
        refuse_url(value)
    if getattr(information, "parser", None) is not None:
        return information.parser(value)
    if kind in (int, float):
        found = parse_whole_number(value) if kind is int else parse_number(value)
        _check_range(found, information)
        return found
    return _boolean(value) if kind is bool else kind(value)


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


def _from_environment(parameter: Any, _: Any) -> Any:
    """The value of the parameter's variable; an empty variable counts as not set.

    The values of an option that can be repeated are separated by spaces, paths as those in PATH.
    """
    text = os.environ.get(parameter.envvar, "")
    if not text.strip():
        return None
    if not parameter.multiple:
        return text
    if parameter.name in TEXTS or parameter.metavar in {"DIR", "FILE", "PATH"}:
        # A URL is refused in whole: s3 and //bucket/run would be two paths that do not exist.
        return [one for one in re.split(f"{re.escape(os.pathsep)}(?!//)", text) if one]
    return text.split()


def _option(parameter: Any) -> str:
    return str(max(parameter.opts, key=len))


def _shown_name(parameter: Any) -> str:
    """The name of a parameter in messages: --lr, or TASK for an argument."""
    if parameter.param_type_name == "option":
        return _option(parameter)
    return str(parameter.metavar or parameter.name.upper())
