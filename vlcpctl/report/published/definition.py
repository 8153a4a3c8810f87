"""Files of published tables: rows, columns, printed values and which runs they are compared with.

`vlcpctl.table/1`, in TOML; see `tables/` for those that are part of the package.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, unknown_name, unreadable
from vlcpctl.core.fields import Fields
from vlcpctl.core.hashing import content_id
from vlcpctl.core.input_files import open_regular
from vlcpctl.core.printable import printable
from vlcpctl.report.published.selectors import Metric, Pairs, parse_column, parse_selectors

SCHEMA = "vlcpctl.table/1"
SUFFIX = ".toml"
MOST_BYTES = 1 << 20  # of a file
MOST_CELLS = 100_000  # of a table

Printed = float | str | None  # None: blank in the paper

_TABLE_KEYS = frozenset(
    {"schema", "paper", "citation", "number", "caption", "data", "decimals", "command", "emoji9"}
    | {"notes", "select", "columns", "rows"}
)
_COLUMN_KEYS = frozenset(
    {"id", "header", "select", "better", "mean_of", "counts", "decimals", "note"}
)
_ROW_KEYS = frozenset(
    {"group", "name", "run", "select", "values", "printed", "sd", "mean_of", "note"}
)
_BETTER = {"higher": True, "lower": False, "none": None}
_COUNTS = ("n_images", "n_texts", "n_queries", "n_gallery", "n_train")
_DATA = re.compile(r" --data \S+")  # of a command; with --emoji9 it takes none
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")  # in the `select` of a column
_ID = re.compile(r"[A-Za-z0-9_.+-]{1,60}")
_MOST_DECIMALS = 6


@dataclass(frozen=True)
class PublishedColumn:
    """A column: its heading of one or two levels, and what it shows of rows.

    `metric` is None if rows have no such value, or if it is only the mean of other columns. It is
    None too if `select` has placeholders such as {way}: rows fill them, see `PublishedRow.own`.
    """

    id: str
    header: tuple[str, ...]
    select: str
    metric: Metric | None
    selectors: Pairs
    higher_is_better: bool | None
    mean_of: tuple[str, ...]
    counts: Mapping[str, int]
    decimals: int
    note: str

    @property
    def title(self) -> str:
        """The heading on one line."""
        return " ".join(self.header)


@dataclass(frozen=True)
class PublishedRow:
    """A row: the printed cells and deviations, one per column, and the run to compare them with.

    `run` is a pattern of run names; empty: this toolkit has no such run. `filled` has the columns
    whose placeholders this row fills from its `values`, by their ids.
    """

    group: str
    name: str
    run: str
    selectors: Pairs
    printed: tuple[Printed, ...]
    sd: tuple[float | None, ...]
    mean_of: tuple[str, ...]
    note: str
    filled: Mapping[str, PublishedColumn]

    def own(self, column: PublishedColumn) -> PublishedColumn:
        """The column as it is in this row: with the values of the row in its placeholders."""
        return self.filled.get(column.id, column)


@dataclass(frozen=True)
class PublishedTable:
    """One table of a paper; `name` is that of its file, such as "ctp-1"."""

    name: str
    paper: str
    citation: str
    number: str
    caption: str
    data: str
    decimals: int
    command: str
    emoji9: str
    notes: tuple[str, ...]
    selectors: Pairs
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]

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
    take = _Entries(_toml(text, place), place, _TABLE_KEYS)
    if take.text("schema") != SCHEMA:
        raise BadInput(f"{place}: schema is {take.value['schema']!r:.80}, not {SCHEMA!r}")
    decimals, command = take.decimals(2), take.text("command", "")
    columns = tuple(
        _column(found, f"{place}, column {number}", decimals, keys)
        for number, found in enumerate(take.tables("columns"), 1)
    )
    _check_columns(columns, place)
    rows = tuple(
        _row(found, f"{place}, row {number}", columns, keys)
        for number, found in enumerate(take.tables("rows"), 1)
    )
    if len(columns) * len(rows) > MOST_CELLS:
        raise BadInput(f"{place} has more than {MOST_CELLS} cells")
    _check_rows(rows, place)
    return PublishedTable(
        name=name,
        paper=take.text("paper"),
        citation=take.text("citation", ""),
        number=take.text("number"),
        caption=take.text("caption"),
        data=take.text("data"),
        decimals=decimals,
        command=command,
        emoji9=take.text("emoji9", f"{_DATA.sub('', command)} --emoji9" if command else ""),
        notes=take.texts("notes"),
        selectors=parse_selectors(take.text("select", ""), f"{place}, select"),
        columns=columns,
        rows=rows,
    )


def _toml(text: bytes, place: str) -> dict[str, Any]:
    if len(text) > MOST_BYTES:
        raise BadInput(f"{place} is larger than {MOST_BYTES} bytes")
    try:
        return tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place} is not a TOML file: {printable(str(error))}") from error


@dataclass(frozen=True)
class _Entries:
    """Takes the entries of one TOML table; only known keys are allowed."""

    value: dict[str, Any]
    place: str
    known: Collection[str]

    def __post_init__(self) -> None:
        for key in self.value:
            if key not in self.known:
                raise BadInput(f"{self.place}: {unknown_name('key', printable(key), self.known)}")

    @property
    def take(self) -> Fields:
        return Fields(self.value, self.place)

    def text(self, name: str, default: str | None = None) -> str:
        found: str = self.take(name, str, *(() if default is None else (default,)))
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self.take.texts(name, []))

    def tables(self, name: str) -> list[dict[str, Any]]:
        found: list[Any] = self.take(name, list)
        if not found or not all(isinstance(one, dict) for one in found):
            raise BadInput(f"{self.place}: {name} is not a list of tables [[{name}]]")
        return found

    def decimals(self, default: int) -> int:
        found: int = self.take("decimals", int, default)
        if not 0 <= found <= _MOST_DECIMALS:
            raise BadInput(f"{self.place}: decimals is {found}, not between 0 and {_MOST_DECIMALS}")
        return found


def _column(
    found: dict[str, Any], place: str, decimals: int, keys: Collection[str]
) -> PublishedColumn:
    take = _Entries(found, place, _COLUMN_KEYS)
    id_, select, header = take.text("id"), take.text("select", ""), take.texts("header")
    place = f"{place} ({printable(id_)})"
    if not _ID.fullmatch(id_):
        raise BadInput(f"{place}: an id has 1 to 60 letters, digits and the characters _ . + -")
    if not 1 <= len(header) <= 2:
        raise BadInput(f"{place}: header has {len(header)} levels, not one or two")
    better = take.text("better", "higher")
    if better not in _BETTER:
        raise BadInput(f"{place}: {unknown_name('better', better, _BETTER)}")
    counts: dict[str, int] = take.take("counts", dict, {})
    for name in counts:
        if name not in _COUNTS:
            raise BadInput(f"{place}: {unknown_name('count', name, _COUNTS)}")
        Fields(counts, place)(name, int)
    is_whole = select and not _PLACEHOLDER.search(select)
    metric, selectors = parse_column(select, place, keys) if is_whole else (None, ())
    return PublishedColumn(
        id=id_,
        header=header,
        select=select,
        metric=metric,
        selectors=selectors,
        higher_is_better=_BETTER[better],
        mean_of=take.texts("mean_of"),
        counts=counts,
        decimals=take.decimals(decimals),
        note=take.text("note", ""),
    )


def _check_columns(columns: Sequence[PublishedColumn], place: str) -> None:
    known = [column.id for column in columns]
    _refuse_repeated(known, f"{place}: columns", "id")
    for column in columns:
        _check_mean(column.mean_of, column.id, known, f"{place}, column {column.id}")


def _row(
    found: dict[str, Any], place: str, columns: Sequence[PublishedColumn], keys: Collection[str]
) -> PublishedRow:
    take = _Entries(found, place, _ROW_KEYS)
    name = take.text("name")
    place = f"{place} ({printable(name)})"
    printed = _cells(take.take("printed", list), "printed", place, columns)
    sd = _cells(take.take("sd", list, [""] * len(columns)), "sd", place, columns)
    for value in sd:
        if isinstance(value, str) or (value is not None and value < 0):
            raise BadInput(f"{place}: sd contains {value!r:.80}, not a number from 0")
    return PublishedRow(
        group=take.text("group", ""),
        name=name,
        run=take.text("run"),
        selectors=parse_selectors(take.text("select", ""), f"{place}, select"),
        printed=printed,
        sd=tuple(None if isinstance(value, str) else value for value in sd),
        mean_of=take.texts("mean_of"),
        note=take.text("note", ""),
        filled=_filled(take, place, columns, keys) if take.text("run") else {},
    )


def _filled(
    take: _Entries, place: str, columns: Sequence[PublishedColumn], keys: Collection[str]
) -> dict[str, PublishedColumn]:
    """The columns with placeholders, with the values of a row in their place."""
    values: dict[str, str] = take.take("values", dict, {})
    texts = Fields(values, f"{place}, values")
    used: set[str] = set()
    filled = {}
    for column in columns:
        names = _PLACEHOLDER.findall(column.select)
        for name in names:
            if name not in values:
                raise BadInput(f"{place}: values lacks {name!r}, which column {column.id} uses")
            texts(name, str)
        if names:
            select = _PLACEHOLDER.sub(lambda match: values[match[1]], column.select)
            metric, selectors = parse_column(select, f"{place}, column {column.id}", keys)
            filled[column.id] = replace(column, metric=metric, selectors=selectors)
        used.update(names)
    for name in values:
        if name not in used:
            raise BadInput(f"{place}: no column uses {name!r} of values")
    return filled


def _cells(
    found: list[Any], name: str, place: str, columns: Sequence[PublishedColumn]
) -> tuple[Printed, ...]:
    """One cell for each column: a number, a text, or None for an empty text."""
    if len(found) != len(columns):
        raise BadInput(
            f"{place}: {name} has {len(found)} cells, but there are {len(columns)} columns"
        )
    for value in found:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(value, str) and not (is_number and abs(value) < float("inf")):
            raise BadInput(f"{place}: {name} contains {value!r:.80}, not a number or text")
    return tuple((value or None) if isinstance(value, str) else float(value) for value in found)


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
