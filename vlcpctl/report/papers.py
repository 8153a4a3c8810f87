"""Published tables as CSV that reads like the paper, and their cells filled from facts.

Lines `# NAME: TEXT` say what the table is; then come a heading, with ` / ` between its two levels,
and a line for each row of the paper: its group, its name, the runs that it is compared with (a
pattern; blank: there is no such run here), selectors of its own, and the cells as they are printed,
`12.3`, with a standard deviation behind the sign of plus and minus. A line without a name is about
the columns of the rows below it: `select` has the METRIC[@FIELD=GLOB,...] of each, or `mean of A;
B` over other columns, and `better` says where `lower` is, or `none`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.core.words import printable
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import read_text
from vlcpctl.metrics import recall
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.report.facts import (
    LAST,
    NAMES,
    STEPS,
    Fact,
    Facts,
    Metric,
    Pairs,
    Value,
    parse,
    parse_selectors,
)
from vlcpctl.report.scores import Spread
from vlcpctl.report.table import BOLD, Column, RowGroup, Table, TableCell, fixed, with_best_marked

SUFFIX = ".csv"
FIELDS = ("table", "group", "row", "column", "paper", "paper_sd", "here", "sd", "n_seeds")
_LEADING = ["group", "row", "run", "select"]
_BETTER = {"": True, "lower": False, "none": None}
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_DEVIATION = " \u00b1 "
_MEAN = "mean of "
_TABLES = files("vlcpctl.report").joinpath("paper_tables")
_DECIMALS = 2  # of a column without a printed number
_NAMES = (Column("row", is_number=False), Column("values", is_number=False))
# Metric keys that evaluators write: a column may have one that no row has.
_KEYS = frozenset(
    f"{way}_r{cutoff}" for way in ("i2t", "t2i") for cutoff in (*recall.CUTOFFS, "mean")
) | {"rm", "map_1", "map_5", "map_10", "acc1", "acc5", "mean_per_class_recall", *METRICS}


@dataclass(frozen=True)
class PaperCell:
    """What a paper prints in a cell, and what is shown beside it: a fact, or a mean of columns.

    `here` is the value in the rows of a report, of these `seeds`.
    """

    text: str
    sd: str = ""
    metric: Metric | None = None
    selectors: Pairs = ()
    mean_of: tuple[int, ...] = ()
    here: Value = None
    seeds: tuple[int, ...] = ()

    @property
    def printed(self) -> float | str | None:
        """The number or text; None: blank."""
        is_setting = self.metric is not None and self.metric.kind == "config"
        is_number = _NUMBER.fullmatch(self.text) and not is_setting
        return float(self.text) if is_number else self.text or None


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper; `run` is a pattern of run names, and an empty one matches none."""

    group: str
    name: str
    run: str
    selectors: Pairs
    cells: tuple[PaperCell, ...]


@dataclass(frozen=True)
class Paper:
    """One table of a paper; `name` is that of its file, such as "ctp-1"."""

    name: str
    about: Mapping[str, str]
    notes: tuple[str, ...]
    selectors: Pairs
    columns: tuple[Column, ...]
    decimals: tuple[int, ...]  # of each column
    rows: tuple[PaperRow, ...]

    @property
    def title(self) -> str:
        """Such as "CTP, Table 1: final scores on P9D"."""
        paper, number, caption = (self.about.get(one, "") for one in ("paper", "number", "caption"))
        return f"{paper}, {number}: {caption}"

    def records(self) -> Iterator[dict[str, Any]]:
        """A record with FIELDS for each cell, row by row; None where there is no value.

        `paper` and `here` are numbers or text; `sd` is the standard deviation over `n_seeds`.
        """
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                value = cell.here if isinstance(cell.here, Spread) else None
                yield {
                    "table": self.name,
                    "group": row.group,
                    "row": row.name,
                    "column": _heading(column),
                    "paper": cell.printed,
                    "paper_sd": float(cell.sd) if cell.sd else None,
                    "here": value.mean if value else cell.here,
                    "sd": value.sd if value else None,
                    "n_seeds": len(value.values) if value else None,
                }


def _heading(column: Column) -> str:
    return f"{column.over} {column.name}".strip()


def shipped_names() -> tuple[str, ...]:
    """The names of the tables in the package: by paper, then by number, figures last."""
    names = (one.name for one in _TABLES.iterdir() if one.name.endswith(SUFFIX))
    return tuple(sorted((name.removesuffix(SUFFIX) for name in names), key=_in_order))


def _in_order(name: str) -> tuple[str, bool, list[int], str]:
    paper, _, number = name.partition("-")
    return paper, number.startswith("fig"), [int(one) for one in re.findall(r"\d+", number)], name


def is_file_name(name: str) -> bool:
    """Whether --table means a file, not a table of the package."""
    return name.endswith(SUFFIX) or "/" in name


def table_id(name: str) -> dict[str, str]:
    """The name and an id of the text of a table. Raises as `load_paper` does."""
    return {"name": Path(name).name.removesuffix(SUFFIX), "content": content_id(_read(name)[0])}


def _read(name: str) -> tuple[str, str]:
    """The text of a table, and how messages name it."""
    if is_file_name(name):
        return read_text(Path(name)), printable(name)
    if name not in (known := shipped_names()):
        guess = unknown_name("table", name, known).partition(" (known:")[0]
        raise UsageError(
            f"--table: {guess} (known: {', '.join(known)}); a file of your own ends in {SUFFIX}"
        )
    return _TABLES.joinpath(name + SUFFIX).read_text(encoding="utf-8"), f"table {name}"


def load_paper(name: str, keys: Collection[str] = ()) -> Paper:
    """The table of this name in the package, or of this file; `keys` are those of the rows.

    Raises UsageError for an unknown name, and BadInput for a file that cannot be read or has a
    mistake.
    """
    text, place = _read(name)
    about: dict[str, str] = {}
    notes, lines = [], text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        what, _, said = lines.pop(0).lstrip("# ").partition(":")
        if what == "note":
            notes.append(said.strip())
        else:
            about[what] = said.strip()
    try:
        columns, rows = _parsed(list(csv.reader(io.StringIO("".join(lines)), strict=True)), keys)
        selectors = _pairs(about.get("select", ""))
        usual = int(about.get("decimals", _DECIMALS))
    except (csv.Error, ValueError, UsageError) as error:
        raise BadInput(f"{place} is not a table: {printable(str(error))}") from error
    decimals = []
    for cells in zip(*(row.cells for row in rows), strict=True) if rows else [()] * len(columns):
        numbers = [cell.text for cell in cells if isinstance(cell.printed, float)]
        lengths = (len(number.partition(".")[2]) for number in numbers)
        decimals.append(max(lengths, default=usual))
    stem = Path(name).name.removesuffix(SUFFIX)
    return Paper(stem, about, tuple(notes), selectors, tuple(columns), tuple(decimals), tuple(rows))


def _pairs(text: str) -> Pairs:
    return parse_selectors(text, "select") if text else ()


def _parsed(
    lines: Sequence[Sequence[str]], keys: Collection[str]
) -> tuple[list[Column], list[PaperRow]]:
    """The columns and the rows. Raises ValueError."""
    head = lines[0] if lines else []
    if list(head[:4]) != _LEADING or len(head) < 5:
        raise ValueError(f"it has no heading that begins with {','.join(_LEADING)}")
    titles = list(head[4:])
    better: list[bool | None] = [True] * len(titles)
    chosen = [PaperCell("")] * len(titles)
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(head):
            raise ValueError(f"line {number} has {len(line)} cells, not {len(head)}")
        (group, name, run, select), cells = line[:4], line[4:]
        if name:
            parts = (cell.partition(_DEVIATION) for cell in cells)
            printed = (
                PaperCell(value, sd, one.metric, one.selectors, one.mean_of)
                for (value, _, sd), one in zip(parts, chosen, strict=True)
            )
            rows.append(PaperRow(group, name, run, _pairs(select), tuple(printed)))
        elif group == "better" and set(cells) <= _BETTER.keys():
            better = [_BETTER[cell] for cell in cells]
        elif group == "select":
            chosen = [_chosen(cell, titles, keys) for cell in cells]
        else:
            raise ValueError(f"line {number} has neither the name of a row nor select or better")
    columns = []
    for title, is_better in zip(titles, better, strict=True):
        *upper, lower = title.split(" / ", 1)
        columns.append(Column(lower, higher_is_better=is_better, over="".join(upper)))
    return columns, rows


def _chosen(text: str, titles: Sequence[str], keys: Collection[str]) -> PaperCell:
    """A cell without what is printed: what a column selects."""
    if text.startswith(_MEAN):
        parts = text.removeprefix(_MEAN).split("; ")
        return PaperCell("", mean_of=tuple(map(titles.index, parts)))
    metric, selectors = parse(text, "select", {*keys, *_KEYS}) if text else (None, ())
    return PaperCell("", metric=metric, selectors=selectors)


def fill(paper: Paper, facts: Facts) -> Paper:
    """The table with the values of rows.

    Raises BadInput, naming what matches, if the selectors of a cell match several values.
    """
    rows = []
    for row in paper.rows:
        cells = list(row.cells)
        for place, cell in enumerate(cells):
            if fact := _found(paper, row, place, facts):
                cells[place] = replace(cell, here=fact.value, seeds=fact.seeds)
        for place, cell in enumerate(cells):
            if cell.mean_of:
                parts = [cells[part] for part in cell.mean_of]
                seeds = parts[0].seeds if len({one.seeds for one in parts}) == 1 else ()
                mean = mean_of_values([one.here for one in parts])
                cells[place] = replace(cell, here=mean, seeds=seeds)
        rows.append(replace(row, cells=tuple(cells)))
    return replace(paper, rows=tuple(rows))


def _found(paper: Paper, row: PaperRow, place: int, facts: Facts) -> Fact | None:
    """The fact that a cell shows; None if nothing that its selectors match has a value.

    Selectors of the table give way to those of the row and the column; without step=, keys and
    settings are those of the last step.
    """
    cell = row.cells[place]
    metric = cell.metric
    if metric is None or not row.run:
        return None
    own = [*cell.selectors, *row.selectors, ("run", row.run)]
    fields = {name for name, _ in own}
    last = [("step", LAST)] if metric.kind in {"key", "config"} else []
    usual = [pair for pair in [*last, *paper.selectors] if pair[0] not in fields]
    found = facts.select(metric, tuple(one for one in [*usual, *own] if metric.takes(one[0])))
    known = {
        (tuple(map(one.name, (*NAMES, *STEPS))), one.value): one
        for one in reversed(found)
        if one.value is not None
    }
    several = [("run", [one.run for one in found])]
    several += [(name, [one.name(name) for one in known.values()]) for name in (*NAMES, *STEPS)]
    several.append(("value", [str(one.value) for one in known.values()]))
    for name, names in several:
        if len(set(names)) > 1:
            raise BadInput(
                f"table {paper.name}, row {row.name!r}, column {_heading(paper.columns[place])} "
                f"matches several in {name} ({some_names(sorted(set(names)))}); select one with "
                f"{name}= in the table, or with --run"
            )
    return next(iter(known.values()), None)


def mean_of_values(values: Sequence[Value]) -> Spread | None:
    """The mean of the values, seed by seed, or of their means if their seeds are not as many.

    None if one is missing or is text.

    >>> mean_of_values([Spread((1.0, 2.0)), Spread((3.0, 4.0))])
    Spread(values=(2.0, 3.0))
    """
    known = [value for value in values if isinstance(value, Spread)]
    if not known or len(known) < len(values):
        return None
    if len({len(value.values) for value in known}) > 1:  # as of a model at the start: no seeds
        return Spread((math.fsum(value.mean for value in known) / len(known),))
    columns = zip(*(value.values for value in known), strict=True)
    return Spread(tuple(math.fsum(column) / len(known) for column in columns))


def paper_table(paper: Paper) -> Table:
    """The table with a line of printed values, and one of the values of rows, per row."""
    cells = [cell for row in paper.rows for cell in row.cells]
    has_printed = any(cell.text for cell in cells)  # one of a user's own may have none
    groups = []
    for name in dict.fromkeys(row.group for row in paper.rows):
        rows = [row for row in paper.rows if row.group == name]
        groups.append(RowGroup(name, tuple(_lines(paper, rows, has_printed=has_printed))))
    notes = [one for one in map(paper.about.get, ("citation", "data")) if one]
    notes = [f"{'paper' if has_printed else 'data'}: {', '.join(notes)}"] if notes else []
    counts = sorted({len(one.here.values) for one in cells if isinstance(one.here, Spread)})
    if counts not in ([], [1]):
        said = " or ".join(map(str, counts))
        notes.append(f"here: mean and sample standard deviation over {said} seeds")
    if any(cell.is_strong for group in groups for row in group.rows for cell in row):
        notes.append(BOLD)
    shown = {row.run for row in paper.rows if any(one.here is not None for one in row.cells)}
    missing = dict.fromkeys(row.run for row in paper.rows if row.run and row.run not in shown)
    if missing:
        notes.append(f"the rows have no values of: {some_names(list(missing))}")
    columns, every = (*_NAMES, *paper.columns), (*notes, *paper.notes)
    return Table(paper.title, columns, tuple(groups), every, keys=len(_NAMES), is_ordered=True)


def _lines(
    paper: Paper, rows: Sequence[PaperRow], *, has_printed: bool
) -> Iterator[tuple[TableCell, ...]]:
    here = []  # by column
    for number, column in enumerate(paper.columns):
        cells = [row.cells[number] for row in rows]
        group = RowGroup("", tuple((_here(one.here, paper.decimals[number]),) for one in cells))
        marked = with_best_marked((column,), group, [one.seeds for one in cells])
        here.append([cell for (cell,) in marked.rows])
    for row, *line in zip(rows, *here, strict=True):
        if not has_printed:
            yield TableCell(row.name), TableCell("here"), *line
            continue
        printed = (
            (one, one.printed if isinstance(one.printed, float) else None) for one in row.cells
        )
        cells_ = (TableCell(one.text, one.sd, value, is_faint=True) for one, value in printed)
        yield TableCell(row.name), TableCell("paper", is_faint=True), *cells_
        yield TableCell(""), TableCell("here"), *line


def _here(value: Value, decimals: int) -> TableCell:
    if not isinstance(value, Spread):
        return TableCell(value or "")
    sd = "" if value.sd is None else fixed(value.sd, decimals)
    return TableCell(fixed(value.mean, decimals), sd, value.mean, values=value.values)
