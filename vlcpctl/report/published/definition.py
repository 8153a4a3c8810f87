"""Files of published tables: rows, columns, printed values and which runs they are compared with.

`vlcpctl.table/1`, in TOML; see `tables/` for those that are part of the package.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from vlcpctl.core.errors import BadInput, UsageError, unknown_name, unreadable
from vlcpctl.core.words import printable
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import converted, open_regular
from vlcpctl.files.rows import COUNTS
from vlcpctl.report.facts.language import COLUMN, Metric, Pairs, parse, parse_selectors

SCHEMA = "vlcpctl.table/1"
SUFFIX = ".toml"
MOST_BYTES = 1 << 20  # of a file
MOST_CELLS = 100_000  # of a table

_Entry = TypeVar("_Entry", "PublishedTable", "PublishedColumn", "PublishedRow")

Printed = float | str | None  # None: blank in the paper

# What is worked out from the entries of a file.
_COMPUTED = frozenset({"metric", "selectors", "filled"})
_BETTER = {"higher": True, "lower": False, "none": None}
_DATA = re.compile(r" --data \S+")  # of a command; with --emoji9 it takes none
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")  # in the `select` of a column
_ID = re.compile(r"[A-Za-z0-9_.+-]{1,60}")
_MOST_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class PublishedColumn:
    """A column: its heading of one or two levels, and what it shows of rows.

    `metric` is None if rows have no such value, or if it is only the mean of other columns. It is
    None too if `select` has placeholders such as {way}: rows fill them, see `PublishedRow.own`.
    """

    id: str
    header: tuple[str, ...]
    decimals: int
    select: str = ""
    better: str = "higher"
    mean_of: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    metric: Metric | None = None
    selectors: Pairs = ()

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a higher value is better; None if no value is."""
        return _BETTER[self.better]

    @property
    def title(self) -> str:
        """The heading on one line."""
        return " ".join(self.header)


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A row: the printed cells and deviations, one per column, and the run to compare them with.

    `run` is a pattern of run names; empty: this toolkit has no such run. `filled` has the columns
    whose placeholders this row fills from its `values`, by their ids.
    """

    name: str
    run: str
    printed: tuple[Printed, ...]
    sd: tuple[float | None, ...]
    group: str = ""
    select: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    mean_of: tuple[str, ...] = ()
    note: str = ""
    selectors: Pairs = ()
    filled: Mapping[str, PublishedColumn] = field(default_factory=dict)

    def own(self, column: PublishedColumn) -> PublishedColumn:
        """The column as it is in this row: with the values of the row in its placeholders."""
        return self.filled.get(column.id, column)


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """One table of a paper; `name` is that of its file, such as "ctp-1"."""

    name: str
    paper: str
    number: str
    caption: str
    data: str
    citation: str = ""
    decimals: int = 2
    command: str = ""
    emoji9: str = ""
    notes: tuple[str, ...] = ()
    select: str = ""
    selectors: Pairs = ()
    columns: tuple[PublishedColumn, ...] = ()
    rows: tuple[PublishedRow, ...] = ()

    @property
    def title(self) -> str:
        """Such as "CTP, Table 1: final scores on P9D"."""
        return f"{self.paper}, {self.number}: {self.caption}"


def shipped_names() -> tuple[str, ...]:
    """The names of the tables in the package: by paper, then by number, figures last."""
    directory = _directory()
    found = directory.iterdir() if directory.is_dir() else ()
    names = (one.name for one in found if one.name.endswith(SUFFIX))
    return tuple(sorted((name.removesuffix(SUFFIX) for name in names), key=_in_order))


def is_file_name(name: str) -> bool:
    """Whether --table means a file, not a table of the package."""
    return name.endswith(SUFFIX) or "/" in name


def load_table(name: str, keys: Collection[str] = ()) -> PublishedTable:
    """The table of this name in the package, or of this file.

    `keys` are metric keys that rows have. Raises UsageError for an unknown name, and BadInput for
    a file that cannot be read or has a mistake.
    """
    text, place = _read(name)
    return parse_table(text, place, _stem(name), keys)


def table_id(name: str) -> dict[str, str]:
    """The name and an id of the text of a table, by name or file.

    Raises as `load_table` does if it cannot be read.
    """
    return {"name": _stem(name), "content": content_id(_read(name)[0].decode("utf-8", "replace"))}


def _read(name: str) -> tuple[bytes, str]:
    """The text of a table, and how messages name it."""
    if is_file_name(name):
        try:
            with open_regular(Path(name)) as file:
                return file.read(MOST_BYTES + 1), printable(name)
        except OSError as error:
            raise BadInput(unreadable(printable(name), error)) from error
    if name not in shipped_names():
        raise UsageError(f"--table: {_unknown(name)}; a file of your own ends in {SUFFIX}")
    return _directory().joinpath(name + SUFFIX).read_bytes(), f"table {name}"


def _stem(name: str) -> str:
    return Path(name).name.removesuffix(SUFFIX)


def _unknown(name: str) -> str:
    """The message for an unknown table, with all names: `unknown_name` lists only some."""
    known = shipped_names()
    guess = unknown_name("table", name, known).partition(" (known:")[0]
    return f"{guess} (known: {', '.join(known) or 'none'})"


def _directory() -> Any:
    return files("vlcpctl.report.published").joinpath("tables")


def _in_order(name: str) -> tuple[str, bool, list[int], str]:
    paper, _, number = name.partition("-")
    return paper, number.startswith("fig"), [int(one) for one in re.findall(r"\d+", number)], name


def parse_table(text: bytes, place: str, name: str, keys: Collection[str] = ()) -> PublishedTable:
    """The table of a file's text; `place` names it in messages.

    Raises BadInput for the first mistake: not TOML, an unknown key, a wrong type, a wrong number
    of cells, an unknown metric, field or name, or a name that is used twice.
    """
    found = _toml(text, place)
    schema = found.pop("schema", None)
    if schema != SCHEMA:
        raise BadInput(f"{place}: schema is {schema!r:.80}, not {SCHEMA!r}")
    columns, rows = (_list(found, one, place) for one in ("columns", "rows"))
    table = _read_as(PublishedTable, {**found, "columns": [], "rows": []}, place, {"name": name})
    _check_decimals(table.decimals, place)
    usual = _DATA.sub("", table.command) + " --emoji9" if table.command else ""
    table = replace(
        table,
        emoji9=table.emoji9 if "emoji9" in found else usual,
        selectors=_selectors(table.select, place),
        columns=tuple(
            _column(one, f"{place}, column {number}", table.decimals, keys)
            for number, one in enumerate(columns, 1)
        ),
    )
    _check_columns(table.columns, place)
    table = replace(
        table,
        rows=tuple(
            _row(one, f"{place}, row {number}", table.columns, keys)
            for number, one in enumerate(rows, 1)
        ),
    )
    if len(table.columns) * len(table.rows) > MOST_CELLS:
        raise BadInput(f"{place} has more than {MOST_CELLS} cells")
    _check_rows(table.rows, place)
    return table


def _toml(text: bytes, place: str) -> dict[str, Any]:
    if len(text) > MOST_BYTES:
        raise BadInput(f"{place} is larger than {MOST_BYTES} bytes")
    try:
        return tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place} is not a TOML file: {printable(str(error))}") from error


def _list(found: Mapping[str, Any], name: str, place: str) -> list[dict[str, Any]]:
    tables = found.get(name)
    if not tables or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise BadInput(f"{place}: {name} is not a list of tables [[{name}]]")
    return tables


def _read_as(
    kind: type[_Entry], found: Mapping[str, Any], place: str, more: Mapping[str, Any]
) -> _Entry:
    """An entry of a file with `more` that it does not contain; only known keys are allowed."""
    known = {one.name for one in fields(kind)} - _COMPUTED - more.keys()
    for key in found:
        if key not in known:
            raise BadInput(f"{place}: {unknown_name('key', printable(key), known)}")
    return converted({**found, **more}, kind, place)


def _check_decimals(decimals: int, place: str) -> None:
    if not 0 <= decimals <= _MOST_DECIMALS:
        raise BadInput(f"{place}: decimals is {decimals}, not between 0 and {_MOST_DECIMALS}")


def _column(
    found: dict[str, Any], place: str, decimals: int, keys: Collection[str]
) -> PublishedColumn:
    column = _read_as(PublishedColumn, {"decimals": decimals, **found}, place, {})
    place = f"{place} ({printable(column.id)})"
    if not _ID.fullmatch(column.id):
        raise BadInput(f"{place}: an id has 1 to 60 letters, digits and the characters _ . + -")
    if not 1 <= len(column.header) <= 2:
        raise BadInput(f"{place}: header has {len(column.header)} levels, not one or two")
    if column.better not in _BETTER:
        raise BadInput(f"{place}: {unknown_name('better', column.better, _BETTER)}")
    for name in column.counts:
        if name not in COUNTS:
            raise BadInput(f"{place}: {unknown_name('count', name, COUNTS)}")
    _check_decimals(column.decimals, place)
    if not column.select or _PLACEHOLDER.search(column.select):
        return column
    metric, selectors = parse(column.select, place, keys, COLUMN)
    return replace(column, metric=metric, selectors=selectors)


def _check_columns(columns: Sequence[PublishedColumn], place: str) -> None:
    known = [column.id for column in columns]
    _refuse_repeated(known, f"{place}: columns", "id")
    for column in columns:
        _check_mean(column.mean_of, column.id, known, f"{place}, column {column.id}")


def _row(
    found: dict[str, Any], place: str, columns: Sequence[PublishedColumn], keys: Collection[str]
) -> PublishedRow:
    cells = {"printed": found.get("printed"), "sd": found.get("sd", [""] * len(columns))}
    blank = {
        name: [None if cell == "" else cell for cell in line]
        for name, line in cells.items()
        if isinstance(line, list)
    }
    row = _read_as(PublishedRow, {**found, **blank}, place, {})
    place = f"{place} ({printable(row.name)})"
    for name, line in (("printed", row.printed), ("sd", row.sd)):
        if len(line) != len(columns):
            raise BadInput(
                f"{place}: {name} has {len(line)} cells, but there are {len(columns)} columns"
            )
        for value in line:
            if isinstance(value, float) and not math.isfinite(value):
                raise BadInput(f"{place}: {name} contains {value!r}, not a number or text")
    for deviation in row.sd:
        if deviation is not None and deviation < 0:
            raise BadInput(f"{place}: sd contains {deviation!r}, not a number from 0")
    selectors = _selectors(row.select, place)
    return replace(row, selectors=selectors, filled=_filled(row, place, columns, keys))


def _selectors(text: str, place: str) -> Pairs:
    """The selectors that all cells of a table or row have, if there are any."""
    return parse_selectors(text, f"{place}, select", COLUMN) if text else ()


def _filled(
    row: PublishedRow, place: str, columns: Sequence[PublishedColumn], keys: Collection[str]
) -> dict[str, PublishedColumn]:
    """The columns with placeholders, with the values of a row in their place."""
    used: set[str] = set()
    filled = {}
    for column in columns if row.run else ():
        names = _PLACEHOLDER.findall(column.select)
        for name in names:
            if name not in row.values:
                raise BadInput(f"{place}: values lacks {name!r}, which column {column.id} uses")
        if names:
            select = _PLACEHOLDER.sub(lambda match: row.values[match[1]], column.select)
            metric, selectors = parse(select, f"{place}, column {column.id}", keys, COLUMN)
            filled[column.id] = replace(column, metric=metric, selectors=selectors)
        used.update(names)
    for name in row.values if row.run else ():
        if name not in used:
            raise BadInput(f"{place}: no column uses {name!r} of values")
    return filled


def _check_rows(rows: Sequence[PublishedRow], place: str) -> None:
    for group in dict.fromkeys(row.group for row in rows):
        members = [row for row in rows if row.group == group]
        known = [row.name for row in members]
        _refuse_repeated(
            known, f"{place}: rows of group {group!r}" if group else f"{place}: rows", "name"
        )
        for row in members:
            _check_mean(row.mean_of, row.name, known, f"{place}, row {printable(row.name)}")


def _check_mean(names: Iterable[str], own: str, known: Sequence[str], place: str) -> None:
    for name in names:
        if name == own:
            raise BadInput(f"{place}: mean_of contains the name itself")
        if name not in known:
            raise BadInput(f"{place}, mean_of: {unknown_name('name', printable(name), known)}")


def _refuse_repeated(names: Iterable[str], place: str, what: str) -> None:
    name, count = max(Counter(names).items(), key=lambda one: one[1])
    if count > 1:
        raise BadInput(f"{place} have {count} times the {what} {printable(name)!r}")
