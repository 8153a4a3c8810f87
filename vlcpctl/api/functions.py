"""Commands as functions: a call becomes the words of a command line, and its output the result."""

from __future__ import annotations

import inspect as inspection
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import TextWrapper
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from vlcpctl.api import NAMES
from vlcpctl.api.child import output_of
from vlcpctl.api.results import Report
from vlcpctl.commands.batch import Batch
from vlcpctl.commands.buffer import Buffer
from vlcpctl.commands.check import Check
from vlcpctl.commands.distill import Distill
from vlcpctl.commands.doctor import Doctor
from vlcpctl.commands.eval_probe import EvalProbe
from vlcpctl.commands.eval_retrieval import EvalRetrieval
from vlcpctl.commands.eval_zeroshot import EvalZeroshot
from vlcpctl.commands.export import Export
from vlcpctl.commands.forget import Forget
from vlcpctl.commands.forgetting_report import ForgettingReport
from vlcpctl.commands.import_checkpoint import ImportCheckpoint
from vlcpctl.commands.inspect import Inspect
from vlcpctl.commands.invert_texts import InvertTexts
from vlcpctl.commands.merge import Merge
from vlcpctl.commands.methods import Methods
from vlcpctl.commands.sample import Sample
from vlcpctl.commands.spatial_report import SpatialReport
from vlcpctl.commands.split import Split
from vlcpctl.commands.train_step import TrainStep
from vlcpctl.commands.update import Update
from vlcpctl.core.errors import nearest
from vlcpctl.core.options import Command, Option, Takes, each, options_of, spelled, text_of

Rows = list[dict[str, Any]]
Facts = dict[str, Any]
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_INDENTED = TextWrapper(100, initial_indent="    ", subsequent_indent="        ")


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call of a function: the class of its command, and the arguments given."""

    kind: type[Command]
    given: Mapping[str, Any]

    def run(self, *more: str) -> str:
        """What the command prints, with `more` options. Rows among its arguments are its stdin."""
        words: list[str] = list(more)
        arguments: list[Any] = []
        for name, value in self.given.items():
            row, kind = options_of(self.kind)[name]
            if row.is_argument:
                arguments += each(value)
            else:
                words += _words(name, row, kind, value)
        rows = [json.dumps(one) + "\n" for one in arguments if isinstance(one, Mapping)]
        words += ["--", *(text_of(one) for one in arguments if not isinstance(one, Mapping))]
        return output_of(_command(self.kind), [*words, *(["-"] if rows else [])], "".join(rows))


def _words(name: str, row: Option, kind: Any, value: Any) -> Iterator[str]:
    """The words for a value of an option; none for None, or a switch that is off.

    Raises TypeError for True or False where a value is needed: the option alone would take the
    next word for it.
    """
    if value is None or value == "":
        return
    option = spelled(name, row)
    if isinstance(value, bool):
        if kind is not bool:
            raise TypeError(f"{name} needs a value, not {value}")
        yield from [option] if value else [row.opposite] if row.opposite else []
        return
    for one in each(value) if get_origin(kind) is list else [value]:
        yield f"{option}={text_of(one)}"


def _command(kind: type[Command]) -> str:
    """The name of a command.

    >>> _command(TrainStep)
    'train-step'
    """
    return kind.__module__.rpartition(".")[2].replace("_", "-")


def _function(
    kind: Callable[_Parameters, Command], result: Callable[[_Call], _Result]
) -> Callable[_Parameters, _Result]:
    """The function that runs a command, with the parameters of its class."""
    command: Any = kind
    signature = _signature(command)
    name = NAMES[_command(command)]

    def call(*positional: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        given = _bound(name, signature, positional, named)
        return result(_Call(kind=command, given=given))

    call.__name__ = call.__qualname__ = name
    call.__module__ = "vlcpctl"
    call.__doc__ = _documentation(command)
    call.__dict__["__signature__"] = signature
    call.__annotations__ = {"return": result.__annotations__["return"]}
    return call


def _signature(kind: type[Command]) -> inspection.Signature:
    """The signature of a class, with the types that it may be given as."""
    hints = get_type_hints(kind)
    found = inspection.signature(kind)
    return found.replace(
        parameters=[
            one.replace(annotation=_given_as(hints[one.name])) for one in found.parameters.values()
        ],
        return_annotation=inspection.Signature.empty,
    )


def _given_as(hint: Any) -> Any:
    return get_args(hint)[1] if get_origin(hint) is Takes else hint


def _bound(
    name: str, signature: inspection.Signature, positional: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by parameter. Raises TypeError if they do not fit the signature."""
    for word in named:
        if word not in signature.parameters:
            near = nearest(word, signature.parameters)
            guess = f"did you mean {near!r}?" if near else f"see help(vlcpctl.{name})"
            raise TypeError(f"{name}() got an unexpected keyword argument {word!r}; {guess}")
    try:
        return signature.bind(*positional, **named).arguments
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None


def _documentation(kind: type[Command]) -> str:
    """The help of a command, without its command lines."""
    paragraphs = inspection.cleandoc(kind.__doc__ or "").split("\n\n")
    told = [one for one in paragraphs if not one.startswith("Examples:")]
    rows = options_of(kind).items()
    lines = [
        _INDENTED.fill(f"{name}: {row.help}")
        for name, (row, _) in rows
        if kind.__dataclass_fields__[name].init
    ]
    return "\n\n".join([*told, "\n".join(["Parameters:", *lines])])


def _path(call: _Call) -> Path:
    call.run()
    return Path(call.given["out"])


def _rows(call: _Call) -> Rows:
    """Rows, those of a file if one is written."""
    out = call.given.get("out")
    printed = call.run(*(["--out=-"] if out is None else []))
    if out is not None and str(out) != "-":
        printed = Path(out).read_text(encoding="utf-8")
    return [json.loads(line) for line in printed.splitlines()]


def _facts(call: _Call) -> Facts:
    found: Facts = json.loads(call.run("--json"))
    return found


def _lines(call: _Call) -> Rows:
    return [json.loads(line) for line in call.run("--json").splitlines()]


def _report(call: _Call) -> Report:
    if call.given.get("out") is not None:
        call.run()
        return Report.read(call.given["out"])
    with TemporaryDirectory() as place:
        out = Path(place, "report")
        replace(call, given={**call.given, "out": out}).run()
        return replace(Report.read(out), path=None)


def _checkpoint(call: _Call) -> Path:
    """The checkpoint of update; of the last week if several were made again."""
    found = json.loads(call.run("--json"))
    return Path((found[-1] if isinstance(found, list) else found)["checkpoint"])


def _printed(call: _Call) -> str:
    return call.run()


batch = _function(Batch, _printed)
buffer = _function(Buffer, _path)
check = _function(Check, _lines)
distill = _function(Distill, _path)
doctor = _function(Doctor, _facts)
eval_probe = _function(EvalProbe, _rows)
eval_retrieval = _function(EvalRetrieval, _rows)
eval_zeroshot = _function(EvalZeroshot, _rows)
export_as = _function(Export, _path)
forget = _function(Forget, _facts)
forgetting_report = _function(ForgettingReport, _report)
import_checkpoint = _function(ImportCheckpoint, _path)
inspect = _function(Inspect, _facts)
invert_texts = _function(InvertTexts, _path)
merge = _function(Merge, _path)
list_methods = _function(Methods, _facts)
sample = _function(Sample, _path)
spatial_report = _function(SpatialReport, _rows)
split = _function(Split, _path)
train_step = _function(TrainStep, _path)
update = _function(Update, _checkpoint)
