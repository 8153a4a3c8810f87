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
    digits = max((len(number) for row in rows for number in _numbers(row)), default=_USUAL)
    return list(rows) if digits <= _USUAL else [_with_digits(row, digits) for row in rows]


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


def _numbers(row: Row) -> Iterable[str]:
    numbers = (number_of(name, step) for name, step in _numbered(row))
    return [number for number in numbers if number is not None]


def _numbered(row: Row) -> Iterable[tuple[str, int]]:
    """The names in a row with their steps; none of data outside the stream."""
    if row.gallery == "merged":
        return [(name, step) for step, name in enumerate(row.tasks)]
    return [] if row.task_step is None else [(row.task, row.task_step)]


def _with_digits(row: Row, digits: int) -> Row:
    if row.gallery == "merged":
        tasks = (padded(name, step, digits) for step, name in enumerate(row.tasks))
        return replace(row, tasks=tuple(tasks))
    if row.task_step is None:
        return row
    task = padded(row.task, row.task_step, digits)
    return replace(row, task=task, tasks=(task,) if row.tasks == (row.task,) else row.tasks)
