"""The cells of a published table: printed value, value of rows and their difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.report.facts.language import LAST, NAMES, STEPS, Metric, Pairs
from vlcpctl.report.facts.table import Fact, Facts, Value
from vlcpctl.report.published.averages import Misprint, mean_of_values, misprints
from vlcpctl.report.published.definition import (
    Printed,
    PublishedColumn,
    PublishedRow,
    PublishedTable,
)
from vlcpctl.report.scores.summary import Spread

_NOUNS = {
    "evaluator": "evaluators",
    "protocol": "protocols",
    "split": "splits",
    "run": "runs",
    "method": "methods",
    "gallery": "galleries",
    "data": "data sets",
    "step": "steps",
    "since": "earlier steps",
}


@dataclass(frozen=True)
class Cell:
    """One cell: what the paper prints, what rows have, and counts of these that contradict it.

    `other` has (name, count in the rows, count of the paper) of data that are not the paper's;
    `seeds` are those of the values of `here`, in their order, empty if they are not known.
    """

    printed: Printed
    printed_sd: float | None
    here: Value
    other: tuple[tuple[str, int, int], ...] = ()
    seeds: tuple[int, ...] = ()

    @property
    def gap(self) -> float | None:
        """The value of rows minus the printed one; None if either is missing or is text."""
        if isinstance(self.here, Spread) and isinstance(self.printed, float):
            return self.here.mean - self.printed
        return None


@dataclass(frozen=True)
class FilledTable:
    """A published table with the values of rows: `cells` has one tuple for each row.

    `is_paper_data` if the rows are of the paper's data, as the user says.
    """

    table: PublishedTable
    cells: tuple[tuple[Cell, ...], ...]
    is_paper_data: bool
    misprints: tuple[Misprint, ...]
    missing_runs: tuple[str, ...]

    def difference(self, row: int, column: int) -> float | None:
        """Rows minus paper in one cell; None where the data are not known to be the paper's."""
        cell = self.cells[row][column]
        return cell.gap if self.is_paper_data and not cell.other else None


def filled(table: PublishedTable, facts: Facts, *, is_paper_data: bool) -> FilledTable:
    """The table with the values of rows.

    Raises BadInput, naming what matches, if the selectors of a cell match several values.
    """
    places = range(len(table.columns))
    cells = [[_own_cell(table, row, place, facts) for place in places] for row in table.rows]
    _fill_means(table, cells)
    runs = dict.fromkeys(row.run for row in table.rows if row.run)
    shown = {
        row.run
        for row, line in zip(table.rows, cells, strict=True)
        if any(cell.here is not None for cell in line)
    }
    missing = tuple(run for run in runs if run not in shown)
    return FilledTable(table, tuple(map(tuple, cells)), is_paper_data, misprints(table), missing)


def _own_cell(table: PublishedTable, row: PublishedRow, place: int, facts: Facts) -> Cell:
    """The cell without means of other cells."""
    column = row.own(table.columns[place])
    printed, sd = row.printed[place], row.sd[place]
    if column.metric is None or not row.run:
        return Cell(printed, sd, None)
    chosen = _chosen(table, row, column, column.metric, facts)
    if chosen is None:
        return Cell(printed, sd, None)
    fact, value = chosen
    return Cell(printed, sd, value, _contradictions(column, fact), fact.seeds)


def _chosen(
    table: PublishedTable,
    row: PublishedRow,
    column: PublishedColumn,
    metric: Metric,
    facts: Facts,
) -> tuple[Fact, Value] | None:
    """What the selectors choose and its value; None if nothing that they match has one."""
    found = facts.select(metric, _selectors(table, row, column, metric))
    _refuse_several(found, ("run",), table, row, column)
    known: dict[object, tuple[Fact, Value]] = {}
    for one in found:
        value = one.measure().value
        if value is not None:
            key = (tuple(sorted(one.names.items())), one.step, one.since, value)
            known.setdefault(key, (one, value))
    _refuse_several([one for one, _ in known.values()], (*NAMES, *STEPS), table, row, column)
    if len(known) > 1:
        values = some_names([_value_text(value) for _, value in known.values()])
        raise BadInput(f"{_place(table, row, column)} matches several values ({values})")
    return next(iter(known.values()), None)


def _selectors(
    table: PublishedTable, row: PublishedRow, column: PublishedColumn, metric: Metric
) -> Pairs:
    """All selectors of a cell that its metric takes; those of the table give way to others.

    Without step=, keys and settings are those of the last step.
    """
    own = [*column.selectors, *row.selectors, ("run", row.run)]
    fields = {field for field, _ in own}
    last = [("step", LAST)] if metric.kind in {"key", "config"} else []
    usual = [pair for pair in [*last, *table.selectors] if pair[0] not in fields]
    return tuple((field, glob) for field, glob in [*usual, *own] if metric.takes(field))


def _refuse_several(
    found: Sequence[Fact],
    fields: Iterable[str],
    table: PublishedTable,
    row: PublishedRow,
    column: PublishedColumn,
) -> None:
    """Raise BadInput if the facts differ in one of these fields."""
    for field in fields:
        names = list(dict.fromkeys(one.name(field) for one in found))
        if len(names) > 1:
            advice = "use --run, or " if field == "run" else ""
            raise BadInput(
                f"{_place(table, row, column)} matches {len(names)} {_NOUNS[field]} "
                f"({some_names(names)}); {advice}select one with {field}= in the table"
            )


def _place(table: PublishedTable, row: PublishedRow, column: PublishedColumn) -> str:
    return f"table {table.name}, row {row.name!r}, column {column.id}"


def _value_text(value: Value) -> str:
    return str(value.mean) if isinstance(value, Spread) else str(value)


def _contradictions(column: PublishedColumn, fact: Fact) -> tuple[tuple[str, int, int], ...]:
    if not column.counts:
        return ()
    counts = fact.counts()
    return tuple(
        (name, min(counts[name]), paper)
        for name, paper in column.counts.items()
        if name in counts and counts[name] != {paper}
    )


def _fill_means(table: PublishedTable, cells: list[list[Cell]]) -> None:
    """Compute the cells that are means: of columns without a metric, and of rows without a run."""
    ids = {column.id: place for place, column in enumerate(table.columns)}
    for place, column in enumerate(table.columns):
        if column.mean_of and not column.select:
            for line in cells:
                line[place] = _mean(line[place], [line[ids[name]] for name in column.mean_of])
    names = {(row.group, row.name): number for number, row in enumerate(table.rows)}
    for number, row in enumerate(table.rows):
        if row.mean_of and not row.run:
            parts = [cells[names[row.group, name]] for name in row.mean_of]
            for place in range(len(table.columns)):
                cells[number][place] = _mean(cells[number][place], [one[place] for one in parts])


def _mean(cell: Cell, parts: Sequence[Cell]) -> Cell:
    here = mean_of_values([part.here for part in parts])
    other = tuple(dict.fromkeys(one for part in parts for one in part.other))
    seeds = {part.seeds for part in parts}
    return Cell(cell.printed, cell.printed_sd, here, other, seeds.pop() if len(seeds) == 1 else ())
