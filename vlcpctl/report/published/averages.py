"""Averages that papers print: recomputed from the printed cells, and for rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vlcpctl.report.published.definition import Printed, PublishedRow, PublishedTable
from vlcpctl.report.scores.summary import Spread

_EXACT = 1e-9  # what is left of binary fractions


@dataclass(frozen=True)
class Misprint:
    """A printed average that is not the mean of the printed cells within their rounding."""

    row: str
    column: str
    printed: float
    mean: float
    parts: tuple[str, ...]
    decimals: int

    @property
    def sentence(self) -> str:
        """What is printed, and what the mean is."""
        mean = f"{self.mean:.{self.decimals}f}"
        return (
            f"misprint in the paper: {self.row}, {self.column}: "
            f"{self.printed:.{self.decimals}f} is printed, but the mean of "
            f"{', '.join(self.parts)} is {mean}"
        )


@dataclass(frozen=True)
class _PrintedMean:
    """A cell that is the mean of other cells: its place, and names, values, decimals of these."""

    row: PublishedRow
    place: int
    names: tuple[str, ...]
    parts: tuple[Printed, ...]
    decimals: tuple[int, ...]


def misprints(table: PublishedTable) -> tuple[Misprint, ...]:
    """The printed averages, of columns and of rows, that are not the mean of their parts."""
    found = []
    for one in (*_of_columns(table), *_of_rows(table)):
        column, printed = table.columns[one.place], one.row.printed[one.place]
        mean = _misprinted(printed, one.parts, column.decimals, one.decimals)
        if mean is not None and isinstance(printed, float):
            name = _row_name(one.row.group, one.row.name)
            found.append(Misprint(name, column.title, printed, mean, one.names, column.decimals))
    return tuple(found)


def _of_columns(table: PublishedTable) -> Iterator[_PrintedMean]:
    places = {column.id: place for place, column in enumerate(table.columns)}
    for place, column in enumerate(table.columns):
        parts = [places[name] for name in column.mean_of]
        names = tuple(table.columns[part].header[-1] for part in parts)
        decimals = tuple(table.columns[part].decimals for part in parts)
        for row in table.rows if parts else ():
            printed = tuple(row.printed[part] for part in parts)
            yield _PrintedMean(row, place, names, printed, decimals)


def _of_rows(table: PublishedTable) -> Iterator[_PrintedMean]:
    for row in table.rows:
        parts = [one for one in table.rows if one.group == row.group and one.name in row.mean_of]
        for place, column in enumerate(table.columns if parts else ()):
            printed = tuple(part.printed[place] for part in parts)
            decimals = (column.decimals,) * len(parts)
            yield _PrintedMean(row, place, row.mean_of, printed, decimals)


def _row_name(group: str, name: str) -> str:
    return f"{group}: {name}" if group else name


def _misprinted(
    printed: Printed, parts: Sequence[Printed], decimals: int, of_parts: Sequence[int]
) -> float | None:
    """The mean of the parts if the printed value cannot be it; None if it can, or one is missing.

    Each number was rounded before it was printed, so it is half a unit of its last digit away at
    most.
    """
    known = [part for part in parts if isinstance(part, float)]
    if not isinstance(printed, float) or len(known) < len(parts):
        return None
    mean = math.fsum(known) / len(known)
    slack = 0.5 * 10**-decimals + math.fsum(0.5 * 10**-one for one in of_parts) / len(known)
    return mean if abs(printed - mean) > slack + _EXACT else None


def mean_of_values(values: Sequence[Spread | str | None]) -> Spread | None:
    """The mean of the values, seed by seed; None if one is missing, is text or has other seeds.

    >>> mean_of_values([Spread((1.0, 2.0)), Spread((3.0, 4.0))])
    Spread(values=(2.0, 3.0))
    """
    known = [value for value in values if isinstance(value, Spread)]
    seeds = {len(value.values) for value in known}
    if not known or len(known) < len(values):
        return None
    if len(seeds) > 1:  # such as of a model at the start, which has no seeds
        return Spread((math.fsum(value.mean for value in known) / len(known),))
    columns = zip(*(value.values for value in known), strict=True)
    return Spread(tuple(math.fsum(column) / len(known) for column in columns))
