"""Options as rows of tables: what each one is, at its field, and which ones go together.

Rules that need opened data are not here: they are checked where the data is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import field, fields
from typing import Any, NamedTuple

from vlcpctl.core.errors import UsageError

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
_ROW = "option"  # in the metadata of a field


class OptionRow(NamedTuple):
    """What an option is; its name, type and default are those of the field that it is written at.

    `help` ends before the words that say what holds without the option, which are `otherwise`, if
    it is not the default. `none` says the same of a preset that lacks it. A text is one of
    `choices`, which shells offer. Numbers are `within` an interval such
    as "(0, 1]". `goes_with` is another option, and its values with which this one has an effect. A
    switch with `has_opposite` has --no-NAME, too.
    """

    section: str
    metavar: str | None
    help: str
    otherwise: str = ""
    none: str = ""
    choices: tuple[str, ...] = ()
    within: str = ""
    goes_with: tuple[str, tuple[str, ...]] | None = None
    has_opposite: bool = False


def option(default: Any, section: str, metavar: str | None, text: str, **more: Any) -> Any:
    """A dataclass field that commands take as an option; `more` are fields of its `OptionRow`."""
    return field(default=default, metadata={_ROW: OptionRow(section, metavar, text, **more)})


def option_rows(kind: type) -> dict[str, OptionRow]:
    """The rows of a dataclass by the names of their fields, in their order."""
    return {one.name: one.metadata[_ROW] for one in fields(kind) if _ROW in one.metadata}


class GoesWith(NamedTuple):
    """A row: `option` has an effect only with one of `values` of the option `other`.

    With `values` None it goes with any value of `other`, and with () only if `other` has none.
    Options are written as parameters are, such as `batch_size`.
    """

    option: str
    other: str
    values: tuple[str, ...] | None = None
    because: str = ""

    def fits(self, value: object) -> bool:
        """Whether the option has an effect with this value of `other`; None if it has none."""
        return value is not None if self.values is None else value in (self.values or (None,))


def refuse_idle(
    rows: Iterable[GoesWith], options: Mapping[str, Any], given: Container[str] | None = None
) -> None:
    """Raise UsageError for an option that is given and has no effect with the other ones.

    `options` has the values by name, None for an option without one. Given are the options in
    `given`, by default those with a value.
    """
    for row in rows:
        is_given = options.get(row.option) is not None if given is None else row.option in given
        value = options.get(row.other)
        if not is_given or row.fits(value):
            continue
        option, other = (f"--{name.replace('_', '-')}" for name in (row.option, row.other))
        at = f"without {other}" if value is None else f"with {other}"
        only = f"it applies only to {other} {', '.join(row.values)}" if row.values else ""
        why = row.because or only
        said = f"{at} {value}" if row.values and value is not None else at
        raise UsageError(f"{option} has no effect {said}{why and ': '}{why}")
