"""Names of tasks numbered with as many digits in every row, so that those of a report sort.

Names start with the step: 05-week. Rows of a run's first hundred tasks have two digits, later ones
three; rows written in week 50 and in week 150 are shown together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vlcpctl.core.rows import Row

_USUAL = 2  # digits


def numbered_alike(rows: Sequence[Row]) -> list[Row]:
    """The rows, with the longest number of any task's name as the length of all.

    Names that do not start with their step are left as they are.
    """
    digits = max(map(len, _numbers(rows)), default=_USUAL)
    return list(rows) if digits <= _USUAL else _with_digits(rows, digits)


def padded(name: str, step: int, digits: int) -> str:
    """The name with its number padded to this many digits, if it starts with its step.

    >>> padded("05-week", 5, 3), padded("week", 5, 3), padded("2024-week", 5, 3)
    ('005-week', 'week', '2024-week')
    """
    number = number_of(name, step)
    return name if number is None else number.rjust(digits, "0") + name[len(number) :]


def number_of(name: str, step: int) -> str | None:
    """The digits with which a name starts, if they are its step and a dash follows; else None.

    >>> number_of("05-week", 5), number_of("05-week", 6), number_of("5 weeks", 5)
    ('05', None, None)
    """
    number, dash, _ = name.partition("-")
    is_step = dash and number.isascii() and number.isdigit() and int(number[:20]) == step
    return number if is_step and _USUAL <= len(number) <= 4 else None


def _numbers(rows: Iterable[Row]) -> Iterable[str]:
    """The numbers in the names of all rows; merged rows share lists of names, read once here."""
    merged = {row.tasks for row in rows if row.gallery == "merged"}
    named = {pair for names in merged for pair in enumerate(names)}
    named |= {
        (row.task_step, row.task)
        for row in rows
        if row.gallery != "merged" and row.task_step is not None
    }
    numbers = (number_of(name, step) for step, name in named)
    return [number for number in numbers if number is not None]


def _with_digits(rows: Iterable[Row], digits: int) -> list[Row]:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    return [_padded_row(row, digits, known) for row in rows]


def _padded_row(row: Row, digits: int, known: dict[tuple[str, ...], tuple[str, ...]]) -> Row:
    """The row with padded names; lists of names, which rows share, are padded once."""
    if row.gallery == "merged":
        names = known.get(row.tasks)
        if names is None:
            names = tuple(padded(name, step, digits) for step, name in enumerate(row.tasks))
            names = known[row.tasks] = known.setdefault(names, names)
        return row if names == row.tasks else replace(row, tasks=names)
    if row.task_step is None:
        return row
    task = padded(row.task, row.task_step, digits)
    if task == row.task:
        return row
    return replace(row, task=task, tasks=(task,) if row.tasks == (row.task,) else row.tasks)
