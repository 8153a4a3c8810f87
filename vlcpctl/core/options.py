"""Options as fields of classes: each is declared once, where its value is kept.

A command is such a class, and an object of it is a request: command lines, help, completion,
variables, checks, the functions of `import vlcpctl` and the documentation follow from its fields.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.words import parse_number, parse_whole_number, printable

# The sections in which the help of a command with many options lists them, in this order.
SECTIONS = INPUT, METHOD, MODEL, OPTIMIZATION, DATA, EXECUTION, TABLES, OUTPUT = (
    "Input",
    "Method",
    "Model",
    "Optimization",
    "Data",
    "Execution",
    "Tables and figures",
    "Output",
)
NONE = "none"  # takes an option that is remembered back to its default
_OPTION = "option"  # in the metadata of a field
_FALSE = frozenset({"0", "false", "no", "off", "n", "f"})
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})

Seen_co = TypeVar("Seen_co", covariant=True)
Given_contra = TypeVar("Given_contra", contravariant=True)


class Takes(Generic[Seen_co, Given_contra]):
    """The type of a field that may be given as more than it is read as, such as text for a path.

    For type checkers, which see a descriptor; the value is an ordinary attribute.
    """

    def __get__(self, options: object, owner: object) -> Seen_co:
        raise NotImplementedError

    def __set__(self, options: object, value: Given_contra) -> None:
        raise NotImplementedError


StrPath = str | os.PathLike[str]
Row = Mapping[str, Any]
OnePath = Takes[Path, StrPath]
MaybePath = Takes[Path | None, StrPath | None]
Paths = Takes[list[Path], StrPath | Iterable[StrPath]]
Texts = Takes[list[str], str | Iterable[str]]
PathText = Takes[str, StrPath]
PathTexts = Takes[list[str], StrPath | Iterable[StrPath]]
RowFiles = Takes[list[str], StrPath | Row | Iterable[StrPath | Row]]
MaybePathText = Takes[str | None, StrPath | None]
Numbers = Takes[list[str], str | Sequence[float] | Iterable[str | Sequence[float]]]
Names = Takes[str | None, str | Sequence[str] | None]
Amount = Takes[str, int | str]  # a number, or a share such as 5%
MaybeAmount = Takes[str | None, int | str | None]
Auto = Takes[int | None, int | Literal["auto"] | None]  # None: auto


class Option(NamedTuple):
    """What an option is; its name, type and default are those of the field that it is written at.

    `text` ends before the words that say what holds without the option, which are `otherwise`, if
    it is not the default. `choices` are all values of a text. A number, or each of several, is
    `within` an interval such as "(0, 1]". `goes_with` is another option and its values with which
    this one has an effect, as in `GoesWith`. A switch has an `opposite`, such as --no-flip. `usual`
    ones are shown by -h, `rare` ones only by --help-all. `parse` reads a value, and raises
    ValueError. `offers` are what TAB offers, or the function in `commands.words` that knows them.
    One that `resets` takes "none", too.

    What `takes_path` is a path, or a text that may be or have one: it is read unless it `writes`;
    what is `stored` may be in an object store.
    """

    text: str
    metavar: str | None = None
    section: str = OUTPUT
    name: str = ""
    short: str = ""
    otherwise: str = ""
    choices: tuple[str, ...] = ()
    within: str = ""
    goes_with: tuple[Any, ...] | None = None
    opposite: str = ""
    usual: bool = False
    rare: bool = False
    parse: Callable[[str], Any] | None = None
    offers: str | tuple[str, ...] = ()
    resets: bool = False
    takes_path: bool = False  # found by its type
    writes: bool = False
    stored: bool = False
    is_argument: bool = False

    @property
    def help(self) -> str:
        """Its text as a sentence, with what holds without it."""
        return f"{self.text} (default: {self.otherwise})." if self.otherwise else f"{self.text}."


def _field(row: Option, default: Any, *, kw_only: bool = True, init: bool = True) -> Any:
    return field(default=default, kw_only=kw_only, init=init, metadata={_OPTION: row})


def required(text: str, metavar: str | None = None, section: str = OUTPUT, **more: Any) -> Any:
    """A field that is an option without default; `more` are fields of its `Option`."""
    return _field(Option(text, metavar, section, **more), MISSING)


def option(
    text: str,
    metavar: str | None = None,
    section: str = OUTPUT,
    *,
    default: Any = None,
    **more: Any,
) -> Any:
    """A dataclass field that is an option, with a default.

    It is not among the `field_specifiers` of `dataclass_transform`: mypy would take a field
    without `default=` as required.
    """
    return _field(Option(text, metavar, section, **more), default)


def several(text: str, metavar: str | None = None, section: str = OUTPUT, **more: Any) -> Any:
    """A field that is an option which can be repeated."""
    return _field(Option(text, metavar, section, **more), ())


def switch(text: str, section: str = OUTPUT, **more: Any) -> Any:
    """A field that is an option without a value."""
    return _field(Option(text, None, section, **more), default=False)


def printing(text: str, section: str = OUTPUT, *, init: Literal[False] = False, **more: Any) -> Any:
    """A switch of command lines alone: it decides only what is printed."""
    return _field(Option(text, None, section, **more), default=False, init=init)


def argument(metavar: str, text: str, *, kw_only: bool, default: Any = MISSING, **more: Any) -> Any:
    """A field that is an argument of a command line; `kw_only` is False, for type checkers."""
    row = Option(text, metavar, is_argument=True, **more)
    return _field(row, default, kw_only=kw_only)


def like(kind: type[Options], name: str, **changes: Any) -> Any:
    """The option of another class, with changes; what it goes with is checked there.

    It has the default of that class, unless `changes` have another.
    """
    one = kind.__dataclass_fields__[name]
    default = changes.pop("default", one.default)
    row = one.metadata[_OPTION]._replace(goes_with=None)
    return _field(row._replace(**changes), default)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(required, argument, printing, field),
)
class Options:
    """A frozen dataclass whose fields are options.

    Type checkers are not told that it is frozen: mypy would lose the descriptors of a base class.
    Making one converts what is given, and raises UsageError for a value that is not allowed.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    refuses_idle: ClassVar[bool] = True  # whether making one refuses an option without effect

    def __init_subclass__(cls) -> None:
        # Nobody compares or prints requests, and every help would wait for these methods, too.
        dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)

    @classmethod
    def made_of(cls, values: Mapping[str, Any]) -> Self:
        """An object with these values, also of fields that decide only what is printed."""
        printed = {one.name for one in fields(cls) if not one.init}
        made = cls(**{name: value for name, value in values.items() if name not in printed})
        for name in printed & values.keys():
            object.__setattr__(made, name, values[name])
        return made

    def __post_init__(self) -> None:
        for name, (row, kind) in options_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                try:
                    value = converted(row, kind, value)
                except ValueError as error:
                    raise UsageError(f"{spelled(name, row)}: {error}") from error
                object.__setattr__(self, name, value)
        if self.refuses_idle:
            self._refuse_idle()

    def _refuse_idle(self) -> None:
        kind = type(self)
        values = {name: value_of(self, name) for name in options_of(kind)}
        defaults = {one.name: one.default for one in fields(kind)}
        given = {name for name, value in values.items() if value not in (None, defaults[name])}
        refuse_idle(idle_rows(kind), values, given)


class Command(Options):
    """The request of a command line; its docstring is the help.

    Options can be inherited from a class of settings. Where a setting may come from elsewhere,
    such as a preset, its option is None if it was not given.
    """

    def __init_subclass__(cls) -> None:
        others: list[Any] = [one for one in cls.__bases__ if not issubclass(one, Command)]
        for base in others:
            if base is not Options:
                hints = get_type_hints(base)
                for one in fields(base):
                    if one.metadata[_OPTION].otherwise and one.default not in (None, ()):
                        hint = hints[one.name]
                        is_wide = get_origin(hint) is Takes
                        cls.__annotations__[one.name] = hint if is_wide else hint | None
                        setattr(cls, one.name, like(base, one.name, default=None))
        super().__init_subclass__()

    def execute(self) -> None:
        """Do what is asked, and print the result."""
        raise NotImplementedError


def options_of(kind: Any) -> dict[str, tuple[Option, Any]]:
    """The options of a class by name, with the types that they are read as, without None.

    Those of the class itself come first, then those of its bases.
    """
    return _options_of(kind)


@cache
def _options_of(kind: Any) -> dict[str, tuple[Option, Any]]:
    hints, known = get_type_hints(kind), {one.name: one for one in fields(kind)}
    order = [name for one in kind.__mro__ for name in get_annotations(one)]
    rows = {name: one.metadata[_OPTION] for name, one in known.items() if _OPTION in one.metadata}
    return {
        name: (rows[name]._replace(takes_path=_takes_path(hints[name])), _without_none(hints[name]))
        for name in dict.fromkeys(order)
        if name in rows
    }


def _takes_path(hint: Any) -> bool:
    return hint == os.PathLike[str] or any(map(_takes_path, get_args(hint)))


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in {Union, UnionType}:
        return _without_none(next(one for one in get_args(hint) if one is not NoneType))
    return _without_none(get_args(hint)[0]) if get_origin(hint) is Takes else hint


def spelled(name: str, row: Option) -> str:
    """How a command line has an option, or its metavar for an argument.

    >>> spelled("batch_size", Option("Pairs per batch"))
    '--batch-size'
    """
    if row.is_argument:
        return str(row.metavar)
    return row.name or f"--{name.rstrip('_').replace('_', '-')}"


def value_of(options: Options, name: str) -> Any:
    """The value of an option; None for one that is not given, or an empty list or text."""
    value = getattr(options, name)
    return None if value in ([], (), "") else value


def converted(row: Option, kind: Any, value: Any) -> Any:
    """A value as the type that it is read as. Raises ValueError for one that does not fit."""
    if get_origin(kind) is list:
        (of,) = get_args(kind)
        return [converted(row, of, one) for one in each(value)]
    if row.resets and value == NONE:
        return value
    if isinstance(value, str) and row.parse is not None:
        value = row.parse(value)
    elif kind is Path:
        value = Path(value)
    elif kind is str:
        value = text_of(value)
    elif isinstance(value, str):
        value = _parsed(kind, value)
    elif isinstance(value, list):  # of TOML or Python, for several numbers
        value = tuple(value)
    check(row, value)
    return value


def check(row: Option, value: Any) -> None:
    """Raise ValueError for another text than the choices, or a number outside of the interval."""
    if row.choices and value not in row.choices:
        raise ValueError(unknown_name("value", value, row.choices))
    for number in (value if isinstance(value, tuple) else (value,)) if row.within else ():
        if not lies_within(number, row.within):
            finite = "" if "inf" not in row.within or math.isfinite(number) else " and finite"
            raise ValueError(f"{number} is not {in_words(row.within)}{finite}")


def lies_within(value: float, interval: str) -> bool:
    """Whether a number is in an interval such as "[0, inf)"; infinity and NaN never are.

    >>> lies_within(0.0, "[0, 1]"), lies_within(0.0, "(0, inf)"), lies_within(math.inf, "(0, inf)")
    (True, False, False)
    """
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below and math.isfinite(value)


def in_words(interval: str) -> str:
    """An interval as words for a message.

    >>> in_words("(0, inf)"), in_words("[0, 1)")
    ('above 0', 'at least 0 and below 1')
    """
    low, high = interval[1:-1].split(", ")
    words = f"{'above' if interval[0] == '(' else 'at least'} {low}"
    if high == "inf":
        return words
    return f"{words} and {'below' if interval[-1] == ')' else 'at most'} {high}"


def each(value: Any) -> list[Any]:
    """The items of an iterable; what is text, a path, a row or several numbers is one item.

    Raises TypeError for a table of pandas, whose items are the names of its columns.
    """
    if type(value).__name__ == "DataFrame":
        raise TypeError(
            "a DataFrame is neither a path nor rows; give the files of rows, or the rows as "
            "eval_retrieval returns them"
        )
    is_one = isinstance(value, str | os.PathLike | Mapping) or not hasattr(value, "__iter__")
    found = [value] if is_one else list(value)
    # Such as the weights of a merge.
    return [value] if found and all(isinstance(one, int | float) for one in found) else found


def text_of(value: Any) -> str:
    """A value as a word; several in one option are separated by commas.

    >>> text_of(1e-5), text_of((0.9, 0.99)), text_of(Path("runs/00"))
    ('1e-05', '0.9,0.99', 'runs/00')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(text_of, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _parsed(kind: Any, text: str) -> Any:
    """The value of this type that a text spells. Raises ValueError for another text."""
    if get_origin(kind) is tuple:
        one = parse_whole_number if get_args(kind)[0] is int else parse_number
        found = text.split(",")
        if len(found) != len(get_args(kind)):
            raise ValueError(f"'{printable(text)}' is not two numbers such as 0.9,0.99")
        return tuple(map(one, found))
    if kind is bool:
        return _boolean(text)
    return parse_whole_number(text) if kind is int else parse_number(text)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"'{printable(text)}' is neither true nor false")
    return word in _TRUE


class GoesWith(NamedTuple):
    """A row: `option` has an effect only with one of `values` of the option `other`.

    With `values` None it goes with any value of `other`, and with () only if `other` has none.
    Options are written as fields are, such as `batch_size`. Of a text such as column:NAME, the
    part before the colon counts, too.
    """

    option: str
    other: str
    values: tuple[str, ...] | None = None
    because: str = ""

    def fits(self, value: object) -> bool:
        """Whether the option has an effect with this value of `other`; None if it has none."""
        if not self.values:
            return (value is None) == (self.values is not None)
        return value in self.values or str(value).partition(":")[0] in self.values


def idle_rows(kind: type[Options]) -> list[GoesWith]:
    """What the options of a class go with."""
    found = options_of(kind).items()
    return [GoesWith(name, *row.goes_with) for name, (row, _) in found if row.goes_with]


def refuse_idle(
    rows: Iterable[GoesWith], options: Mapping[str, Any], given: Container[str] | None = None
) -> None:
    """Raise UsageError for an option that is given and has no effect with the other ones.

    `options` has the values by name, None for an option without one. Given are the options in
    `given`, by default those with a value.
    """
    for row in rows:
        value = options.get(row.option)
        is_given = value is not None if given is None else row.option in given
        other_value = options.get(row.other)
        if not is_given or row.fits(other_value):
            continue
        option_, other = (f"--{name.replace('_', '-')}" for name in (row.option, row.other))
        at = f"without {other}" if other_value is None else f"with {other}"
        only = f"it applies only to {other} {', '.join(row.values)}" if row.values else ""
        why = row.because or only
        said = f"{at} {other_value}" if row.values and other_value is not None else at
        raise UsageError(f"{option_} has no effect {said}{why and ': '}{why}")
