"""The parameters of the functions: from options of commands, and back to words of a command line.

A parameter has the name of its option (`--batch-size` is batch_size, `--not` is not_) and the same
default. Arguments of a command are positional.
"""

from __future__ import annotations

import inspect
import keyword
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from vlcpctl.commands import options
from vlcpctl.commands.paths import is_path
from vlcpctl.commands.processes import with_locks
from vlcpctl.commands.values import kind_of

# They decide only what is printed.
_PRINTING = frozenset({"--json", "--dry-run", "--print-config", "--list"})
_STDOUT = Path("-")
_NUMBERS = {"N", "WEEK"}  # in a metavar such as N|P%, for text that may be a number
_SEVERAL = {  # metavars of text that has numbers, separated by commas
    "SHARE[,SHARE...]": "float | str | Sequence[float]",
    "W,W[,W...]": "str | Sequence[float]",
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a function. `option` is how a command line has it; () for an argument.

    A switch with two names can be turned off by the second. `annotation` is text, for `help` and
    the stubs.
    """

    name: str
    annotation: str
    default: Any
    option: tuple[str, ...]
    repeats: bool
    help: str

    def as_python(self) -> inspect.Parameter:
        """The parameter in a signature."""
        kind = inspect.Parameter
        if self.option:
            return kind(
                self.name, kind.KEYWORD_ONLY, default=self.default, annotation=self.annotation
            )
        if self.repeats:
            return kind(self.name, kind.VAR_POSITIONAL, annotation=self.annotation)
        return kind(self.name, kind.POSITIONAL_OR_KEYWORD, annotation=self.annotation)

    def words(self, value: Any) -> Iterator[str]:
        """The words for a value of the option; none for None, or a switch that is off.

        Raises TypeError for True or False where a value is needed: the option alone would take the
        next word for it.
        """
        if value is None or self.default == "" == value:
            return
        if isinstance(value, bool):
            if not self.annotation.startswith("bool"):
                raise TypeError(f"{self.name} must be {self.annotation}, not {value}")
            yield from self.option[:1] if value else self.option[1:]
            return
        for one in each(value) if self.repeats and not _is_numbers(value) else [value]:
            yield f"{self.option[0]}={text_of(one)}"


def parameters_of(run: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of the function for a command, by name; arguments first."""
    locked = with_locks(run)
    spelled = options.spelled(locked)
    found = [
        _parameter(one, spelled[name], resets=name in getattr(run, "resettable", ()))
        for name, one in inspect.signature(locked, eval_str=True).parameters.items()
        if not _PRINTING & set(spelled[name])
    ]
    # Python wants what has no default first; keyword-only ones could be in any order.
    found.sort(key=lambda one: (bool(one.option), one.default is not inspect.Parameter.empty))
    return {one.name: one for one in found}


def each(value: Any) -> Iterator[Any]:
    """The items of an iterable; what is text, a path or a row is one item.

    Raises TypeError for a table of pandas, whose items are the names of its columns.
    """
    if type(value).__name__ == "DataFrame":
        raise TypeError(
            "a DataFrame is neither a path nor rows; give the files of rows, or the rows as "
            "eval_retrieval returns them"
        )
    if isinstance(value, str | os.PathLike | Mapping) or not hasattr(value, "__iter__"):
        yield value
    else:
        yield from value


def _is_numbers(value: Any) -> bool:
    """Whether a value is a list of numbers: one value, since what repeats is text or a path."""
    is_list = isinstance(value, list | tuple) and len(value) > 0
    return is_list and all(isinstance(one, int | float) for one in value)


def text_of(value: Any) -> str:
    """A value as a word; several in one option are separated by commas.

    >>> text_of(1e-5), text_of((0.9, 0.99)), text_of(Path("runs/00"))
    ('1e-05', '0.9,0.99', 'runs/00')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _parameter(one: inspect.Parameter, names: list[str], *, resets: bool) -> Parameter:
    """The parameter for one of a command; one that `resets` also takes "none"."""
    kind, information = kind_of(one.annotation)
    longest = [name for name in names if name.startswith("--")]
    name = longest[0][2:].replace("-", "_") if names else one.name
    default = None if one.default == _STDOUT else one.default
    annotation = _annotation(one.name, kind, information)
    if resets and "str" not in annotation:
        annotation += ' | Literal["none"]'
    return Parameter(
        name=f"{name}_" if keyword.iskeyword(name) else name,
        annotation=f"{annotation} | None" if names and default is None else annotation,
        default=default,
        option=tuple(longest),
        repeats=get_origin(kind) is list,
        help=information.help,
    )


def _annotation(name: str, kind: Any, information: Any) -> str:
    """The types that a parameter takes, without None."""
    repeats, metavar = get_origin(kind) is list, str(information.metavar)
    one = get_args(kind)[0] if repeats else kind
    text = "StrPath" if one is Path or is_path(name, one) else str(one.__name__)
    if metavar == "ROWS":
        text = "StrPath | Row"
    elif metavar in _SEVERAL:
        text = _SEVERAL[metavar]
    elif text == "str" and not repeats and ("," in metavar or metavar == "NAMES"):
        text = "str | tuple[float, float]" if information.parser else "str | Sequence[str]"
    elif (text == "str" and _NUMBERS & set(metavar.split("|"))) or metavar == "auto|N":
        text = "int | str"
    return f"{text} | Iterable[{text}]" if repeats else text
