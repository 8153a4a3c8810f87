"""A table, whatever its output format: columns, cells, groups of rows, notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from msgspec import Struct, structs

from vlcpctl.report.scores import Spread

LEVEL = 0.05  # of the two-sided test: how often two equal runs are taken to differ
MIN_SEEDS = 3
UNDEFINED = "-"
BOLD = f"bold: better than the rest of its group (Student's t over seeds, {100 * LEVEL:.0f} %)"


@dataclass(frozen=True)
class Column:
    """One column.

    Neighbours with the same text in `over` are joined under it, as their upper heading.
    """

    name: str
    is_number: bool = True
    higher_is_better: bool | None = None
    over: str = ""

    @property
    def title(self) -> str:
        """Both headings on one line."""
        return f"{self.over}: {self.name}" if self.over else self.name


class TableCell(Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """One cell: its text, standard deviation and number, and how it is emphasised.

    `values` has the number of each seed, in the order of the seeds.
    """

    text: str
    sd: str = ""
    value: float | None = None
    is_strong: bool = False
    is_faint: bool = False
    values: tuple[float, ...] = ()

    @property
    def line(self) -> str:
        """The cell on one line.

        >>> TableCell("51.00", "1.41").line
        '51.00 (1.41)'
        """
        text = f"{self.text} ({self.sd})" if self.sd else self.text
        return " ".join(text.split())


@dataclass(frozen=True)
class RowGroup:
    """Rows under one heading (empty: no heading)."""

    name: str
    rows: tuple[tuple[TableCell, ...], ...]


@dataclass(frozen=True)
class Table:
    """A titled table with groups of rows and notes below.

    The first `keys` columns name a row; a terminal repeats them in every block of columns. Rows of
    a table that `is_ordered` belong to the rows above them, so that they cannot be sorted. Files
    and labels are called `name`, or else by the title.
    """

    title: str
    columns: tuple[Column, ...]
    groups: tuple[RowGroup, ...]
    notes: tuple[str, ...] = ()
    keys: int = 1
    is_ordered: bool = False
    name: str = ""


def upper_headings(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """(text, number of columns) of each upper heading, equal neighbours joined; empty without any.

    >>> upper_headings([Column("a"), Column("b", over="x"), Column("c", over="x")])
    [('', 1), ('x', 2)]
    """
    spans = [(over, len(list(found))) for over, found in groupby(one.over for one in columns)]
    return spans if any(over for over, _ in spans) else []


def number_cell(spread: Spread | None, *, faint: bool = False) -> TableCell:
    """Two decimals, with the standard deviation where there are seeds.

    >>> number_cell(Spread((50.0, 52.0)))
    TableCell(text='51.00', sd='1.41', value=51.0, values=(50.0, 52.0))
    """
    if spread is None:
        return TableCell(UNDEFINED, is_faint=True)
    sd = "" if spread.sd is None else f"{spread.sd:.2f}"
    return TableCell(fixed(spread.mean), sd, spread.mean, is_faint=faint, values=spread.values)


def fixed(value: float, decimals: int = 2) -> str:
    """The number with a fixed number of decimals, and no minus sign before a zero.

    >>> fixed(-0.001), fixed(43.425)
    ('0.00', '43.42')
    """
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def with_best_marked(
    columns: tuple[Column, ...], group: RowGroup, seeds: Sequence[tuple[int, ...]] = ()
) -> RowGroup:
    """The group with the best cells of each column marked, which papers set in bold.

    The best is marked only where it is ahead of every other cell by more than the spread over
    seeds (see `is_ahead`). `seeds` has the seeds of each row: cells of the same seeds are paired.
    """
    if len(group.rows) < 2:
        return group
    rows = [list(row) for row in group.rows]
    for place, column in enumerate(columns):
        if column.higher_is_better is not None:
            cells = [row[place] for row in rows]
            for number in _best(cells, seeds, higher_is_better=column.higher_is_better):
                rows[number][place] = structs.replace(cells[number], is_strong=True)
    return RowGroup(group.name, tuple(tuple(row) for row in rows))


def seed_notes(groups: Sequence[RowGroup], seeds: Sequence[int]) -> tuple[str, ...]:
    """What the numbers of runs with these numbers of seeds are, and what bold is, if any is."""
    is_bold = any(cell.is_strong for group in groups for row in group.rows for cell in row)
    return tuple(note for note in (seed_note(seeds), BOLD if is_bold else "") if note)


def _best(
    cells: Sequence[TableCell], seeds: Sequence[tuple[int, ...]], *, higher_is_better: bool
) -> list[int]:
    """The numbers of the cells that are best beyond the spread; none where all are equal."""
    known = [n for n, cell in enumerate(cells) if cell.value is not None]
    if not known:
        return []
    first = (max if higher_is_better else min)(known, key=lambda n: cells[n].value or 0.0)
    # Compared as printed: runs that round to the same number are all best.
    best = [n for n in known if cells[n].text == cells[first].text]
    others = [n for n in known if n not in best]

    def is_clear(one: int, other: int) -> bool:
        counts = {len(cells[one].values), len(cells[other].values)}
        are_paired = bool(seeds) and seeds[one] == seeds[other] and counts == {len(seeds[one])}
        return is_ahead(_spread(cells[one]), _spread(cells[other]), are_paired=are_paired)

    is_best = bool(others) and all(is_clear(one, other) for one in best for other in others)
    return best if is_best else []


def _spread(cell: TableCell) -> Spread:
    return Spread(cell.values or (cell.value or 0.0,))


def is_ahead(best: Spread, other: Spread, *, are_paired: bool) -> bool:
    """Whether the means differ by Student's t, two-sided at `LEVEL`; never below `MIN_SEEDS`.

    Paired values, of the same seeds in the same order, are compared seed by seed; others by Welch's
    t (Biometrika 1947), which does not take the deviations to be equal. Without any deviation,
    every difference counts.

    >>> is_ahead(Spread((52.0, 42.0, 47.0)), Spread((50.0, 40.0, 45.0)), are_paired=True)
    True
    >>> is_ahead(Spread((52.0, 42.0, 47.0)), Spread((50.0, 40.0, 45.0)), are_paired=False)
    False
    """
    if min(len(best.values), len(other.values)) < MIN_SEEDS:
        return False
    ends = seed_interval(best, other, are_paired=are_paired)
    return ends is not None and not ends[0] <= 0.0 <= ends[1]


def seed_note(seeds: Sequence[int]) -> str:
    """What the numbers of runs with these numbers of seeds are; empty if all have one."""
    counts = set(seeds)
    if counts <= {1}:
        return ""
    if len(counts) > 1:
        return f"mean and sample standard deviation, {min(counts)} to {max(counts)} seeds"
    return f"mean and sample standard deviation, {counts.pop()} seeds"


def seed_interval(one: Spread, other: Spread, *, are_paired: bool) -> tuple[float, float] | None:
    """The 95 % interval of the difference of the means over other seeds, as `is_ahead` has it.

    None with a single seed.
    """
    samples = [one.minus(other)] if are_paired else [one, other]
    sizes = [len(sample.values) for sample in samples]
    if min(sizes) < 2:
        return None
    # The squared standard errors of the means, and the degrees of freedom: of one sample its
    # values less one; of two, Welch's.
    parts = [(each.sd or 0.0) ** 2 / size for each, size in zip(samples, sizes, strict=True)]
    error, middle = math.sqrt(math.fsum(parts)), one.mean - other.mean
    if not error:
        return middle, middle
    shares = (part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    margin = _quantile(math.fsum(parts) ** 2 / math.fsum(shares)) * error
    return middle - margin, middle + margin


def _quantile(freedom: float) -> float:
    """Student's t that two equal runs exceed in either direction with a probability of `LEVEL`.

    >>> _quantile(2)
    4.30
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - LEVEL / 2))
