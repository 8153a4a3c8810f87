"""Commands as functions: a call becomes the words of a command line, and its output the result."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import TextWrapper
from typing import Any

from vlcpctl.api import FACTS, FUNCTIONS, PATH, REPORT, ROWS
from vlcpctl.api.child import output_of
from vlcpctl.api.parameters import Parameter, each, parameters_of, text_of
from vlcpctl.api.results import Report
from vlcpctl.commands import module_name
from vlcpctl.commands.processes import with_cache
from vlcpctl.core.errors import nearest

_INDENTED = TextWrapper(100, initial_indent="    ", subsequent_indent="        ")


def function(name: str) -> Callable[..., Any]:
    """The function `vlcpctl.NAME`, which runs the command of this name."""
    command = name.replace("_", "-")
    run = with_cache(command, importlib.import_module(module_name(command)).run)
    parameters = parameters_of(run)
    signature = inspect.Signature(
        [one.as_python() for one in parameters.values()], return_annotation=FUNCTIONS[name]
    )
    result = _checkpoint if name == "update" else _RESULTS[FUNCTIONS[name]]

    def call(*positional: Any, **named: Any) -> Any:
        given = _bound(name, signature, positional, named)
        return result(_Call(command=command, parameters=parameters, given=given))

    call.__name__ = call.__qualname__ = name
    call.__module__ = "vlcpctl"
    call.__doc__ = _documentation(run, parameters)
    call.__dict__["__signature__"] = signature
    return call


def _bound(
    name: str, signature: inspect.Signature, positional: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by parameter. Raises TypeError if they do not fit the signature."""
    options = [one.name for one in signature.parameters.values() if one.kind != one.VAR_POSITIONAL]
    for word in named:
        if word not in options:
            near = nearest(word, options)
            guess = f"did you mean {near!r}?" if near else f"see help(vlcpctl.{name})"
            raise TypeError(f"{name}() got an unexpected keyword argument {word!r}; {guess}")
    try:
        return signature.bind(*positional, **named).arguments
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None


def _documentation(run: Callable[..., Any], parameters: Mapping[str, Parameter]) -> str:
    """The help of the command, without its command lines."""
    paragraphs = inspect.cleandoc(run.__doc__ or "").split("\n\n")
    told = [one for one in paragraphs if not one.startswith("Examples:")]
    lines = [_INDENTED.fill(f"{one.name}: {one.help}") for one in parameters.values()]
    return "\n\n".join([*told, "\n".join(["Parameters:", *lines])])


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call of a function: its command, its parameters by name, and the arguments given."""

    command: str
    parameters: Mapping[str, Parameter]
    given: Mapping[str, Any]

    @property
    def out(self) -> Path | None:
        """Where the result goes; None if it is returned."""
        out = self.given.get("out")
        return None if out is None or str(out) == "-" else Path(out)

    def run(self, *more: str) -> str:
        """What the command prints, with `more` options. Rows among its arguments are its stdin."""
        options: list[str] = list(more)
        arguments: list[Any] = []
        for name, value in self.given.items():
            parameter = self.parameters[name]
            if parameter.option:
                options += parameter.words(value)
            else:
                several = value if parameter.repeats else [value]
                arguments += [one for part in several for one in each(part)]
        rows = [json.dumps(one) + "\n" for one in arguments if isinstance(one, Mapping)]
        words = [text_of(one) for one in arguments if not isinstance(one, Mapping)]
        stdin = ["-"] if rows else []
        return output_of(self.command, [*options, "--", *words, *stdin], "".join(rows))


def _path(call: _Call) -> Path | None:
    call.run()
    return call.out


def _rows(call: _Call) -> list[dict[str, Any]] | Path:
    printed = call.run()
    return call.out or [json.loads(line) for line in printed.splitlines()]


def _facts(call: _Call) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call.run("--json"))
    return found


def _report(call: _Call) -> Report:
    if call.out is not None:
        call.run()
        return Report.read(call.out)
    with TemporaryDirectory() as place:
        out = Path(place, "report")
        replace(call, given={**call.given, "out": out}).run()
        return replace(Report.read(out), path=None)


def _checkpoint(call: _Call) -> Path:
    """The checkpoint of update; of the last week if several were made again."""
    found = json.loads(call.run("--json"))
    return Path((found[-1] if isinstance(found, list) else found)["checkpoint"])


_RESULTS: dict[str, Callable[[_Call], Any]] = {
    PATH: _path,
    ROWS: _rows,
    FACTS: _facts,
    REPORT: _report,
}
