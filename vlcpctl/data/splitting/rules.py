"""Which task a pair belongs to: one for all, by column, by source, at random, by class or by time.

The rules by class and by time scan the data once before they can assign pairs. The values of a
column of times are numbers of one unit, ISO 8601, or in a given format. A time that is text has a
key: the time in UTC, as text whose order is that of time whatever its precision. What is not
written is the earliest, so that 2023-10 is the start of 2023-10-01, and a time without a zone is in
UTC.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.core.seeds import generator
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.values import kept_text
from vlcpctl.data.tasks.samples import Pair, UnusablePair
from vlcpctl.files.inputs import MOST_TASKS

# From (source, pair) to the task of a kept pair; raises UnusablePair for one without a task.
TaskOf = Callable[[str, Pair], str]
Batches = Iterable[list[Pair]]

KINDS = {
    "all": "all:NAME",
    "column": "column:NAME",
    "iid": "iid",
    "classes": "classes",
    "source": "source",
    "time": "time:COLUMN",
}
Value = str | int | float
KeyOf = Callable[[Value], Value | None]  # the key of a value; None if it is not a time

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_DIGITS = 18  # of a number with a sign of 64 bits
_COARSE = re.compile(r"\d{4}(-\d\d)?", re.ASCII)  # a year, or a month of it
_YEARS = ("%Y", "%y", "%G", "%c", "%x")
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_EPOCH = range(10**8, 5 * 10**9)  # in seconds: the years 1973 to 2128
_OTHER_UNITS = {"years": range(1900, 2101), "dates": range(19000101, 21001232)}
_ROUNDS_AT_ONCE = 1024
MAX_CLASSES = 100_000
NO_CLASSES = "(too many for classes; choose another column with --label-column)"


@dataclass(frozen=True)
class SplitBy:
    """The value of --by: its kind, and what that kind takes after a colon."""

    kind: str
    column: str | None  # of the kinds `column` and `time`
    task: str | None = None  # of the kind `all`, the name of the task

    @classmethod
    def parse(cls, text: str, tasks: int | None) -> SplitBy:
        """Parse --by. Raises UsageError if it is malformed or needs --tasks."""
        kind, colon, name = text.partition(":")
        wants_name = kind in ("all", "column", "time")
        if kind not in KINDS:
            said = unknown_name("rule", kind, KINDS.values())
            raise UsageError(f"--by: {said}; column:{kind} is the rule for a column of this name")
        if wants_name != bool(name) or (colon and not wants_name):
            raise UsageError(f"--by {text!r}: write it as one of {', '.join(KINDS.values())}")
        if kind in ("iid", "classes") and tasks is None:
            raise UsageError(f"--by {kind} needs --tasks, the number of tasks")
        return cls(kind, None, name) if kind == "all" else cls(kind, name or None)


class Rule(NamedTuple):
    """A rule that is ready to assign pairs to tasks.

    `begin` starts a pass: what it returns must be called for the kept pairs in order.
    """

    names: list[str]  # the tasks in order; empty if they follow in order of first appearance
    begin: Callable[[], TaskOf]
    times: tuple[tuple[str, str, str], ...] = ()  # by time: each task, its first and last time


def by_column(column: str) -> Rule:
    """One task per value of a column, in order of first appearance."""
    return Rule([], lambda: lambda _source, pair: str(_present(pair.value, column)))


def by_turn(tasks: int, seed: int) -> Rule:
    """Random tasks of equal size: of T consecutive kept pairs, each of the T tasks gets one."""
    names = numbered("part", tasks)

    def turns() -> Iterator[int]:
        # Drawn for many rounds at once: a call per round would be slow.
        rounds = np.tile(np.arange(tasks), (_ROUNDS_AT_ONCE, 1))
        chunk = 0
        while True:
            yield from generator(seed, "iid", chunk).permuted(rounds, axis=1).ravel().tolist()
            chunk += 1

    def begin() -> TaskOf:
        of_pairs = turns()
        return lambda _source, _pair: names[next(of_pairs)]

    return Rule(names, begin)


def _present(value: Value | None, column: str) -> Value:
    """The value itself. Raises UnusablePair if it is None."""
    if value is None:
        raise UnusablePair("no value", f"no value in column {column!r}")
    return value


def numbered(kind: str, tasks: int) -> list[str]:
    """Names for tasks that are only numbered.

    >>> numbered("part", 2)
    ['part-0', 'part-1']
    """
    width = len(str(tasks - 1))
    return [f"{kind}-{task:0{width}d}" for task in range(tasks)]


def by_class(batches: Batches, tasks: int, seed: int) -> Rule:
    """Divide the classes among the tasks in random order; their numbers differ by at most one.

    Raises BadInput if there are fewer classes than tasks, or more than MAX_CLASSES.
    """
    labels: set[str] = set()
    for batch in batches:
        labels.update(pair.label for pair in batch if pair.label is not None)
        if len(labels) > MAX_CLASSES:
            raise BadInput(f"more than {MAX_CLASSES} labels {NO_CLASSES}")
    if len(labels) < tasks:
        found = f"{len(labels)} classes" if labels else "no class label"
        raise BadInput(f"--by classes --tasks {tasks}: the data has {found} (see --label-column)")
    order = generator(seed, "classes").permutation(len(labels)).tolist()
    names = numbered("classes", tasks)
    task_of = {
        label: names[place * tasks // len(labels)]
        for place, label in zip(order, sorted(labels), strict=True)
    }
    return Rule(names, lambda: lambda _source, pair: task_of[str(_present(pair.label, "label"))])


class _Interval(NamedTuple):
    name: str
    first: Value  # the keys of its first and last time
    last: Value


def by_time(
    batches: Batches, column: str, tasks: int | None, time_format: str | None = None
) -> Rule:
    """Divide the times in a column into consecutive intervals, one per task, and print these.

    If `tasks` is None, every time is a task. Otherwise the tasks are as equal in pairs as possible;
    pairs of the same time always stay together. Memory grows with the number of different times.
    Raises BadInput if the values are not times or do not fill the tasks, and UsageError if `tasks`
    is None and there are more than MOST_TASKS times.
    """
    key_of: KeyOf = number_of if time_format is None else time_in(time_format)
    values: Counter[Value] = Counter()
    for batch in batches:
        values.update(pair.value for pair in batch if pair.value is not None)
    if not values:
        raise BadInput(f"no pair has a value in column {column!r}")
    if key_of is number_of and any(number_of(value) is None for value in values):
        key_of = iso_time
    times = _times(values, key_of, column)
    if tasks is None and len(times) > MOST_TASKS:
        raise UsageError(
            f"column {column!r} has {len(times)} times, too many for one task each; give --tasks"
        )
    found = _cut(times, column, tasks)
    names, firsts = [one.name for one in found], [one.first for one in found]

    def task_of(_source: str, pair: Pair) -> str:
        key = key_of(_present(pair.value, column))
        assert key is not None, "`_times` has checked all values"
        # Comparable: all are numbers, or all are text.
        return names[bisect_right(firsts, key) - 1]

    spans = tuple((one.name, shown(one.first), shown(one.last)) for one in found)
    said = some_names([f"{first} to {last}" for _, first, last in spans])
    say(f"split: first and last time of each task, in UTC: {said}")
    return Rule(names, lambda: task_of, spans)


def _times(values: Counter[Value], key_of: KeyOf, column: str) -> list[tuple[Value, Value, int]]:
    """The times in order: the key of each, how it is written, and the number of its pairs.

    Raises BadInput for a value that is none, and for numbers of two units.
    """
    times: dict[Value | None, tuple[Value, int]] = {}
    for value, pairs in values.items():
        written, before = times.get(key := key_of(value), (value, 0))
        first = min(written, value, key=lambda one: (isinstance(one, str), one))
        times[key] = first, before + pairs
    if None in times:
        found = f"{shortened(repr(times[None][0]))}, which is not a time in ISO 8601"
        raise BadInput(
            f"column {column!r} has {found}; say how its times are written with "
            "--time-format, such as --time-format %d.%m.%Y"
        )
    ordered = sorted((key, *of_key) for key, of_key in times.items() if key is not None)
    unit_before = None
    for key, written, _ in ordered:
        unit = None if isinstance(key, str) else unit_of(key)
        if unit_before and unit and unit != unit_before:
            found = f"numbers of two units, {unit_before} and {unit} ({written})"
            raise BadInput(f"column {column!r} has {found}; write all its times in one")
        unit_before = unit
    return ordered


def _cut(times: list[tuple[Value, Value, int]], column: str, tasks: int | None) -> list[_Interval]:
    """The intervals of the tasks. Raises BadInput if there are fewer than tasks."""
    total = sum(pairs for _, _, pairs in times)
    found: list[_Interval] = []
    before = 0
    first: Value = 0  # as it is written
    for key, written, pairs in times:
        # The interval that contains the midpoint of this time's pairs.
        wanted = len(found)
        if tasks is not None:
            wanted = min(int((before + pairs / 2) * tasks / total), tasks - 1)
        before += pairs
        if wanted > len(found):
            said = f"value {written!r} of column {column!r} alone fills more than one task"
            raise BadInput(f"{said}; give fewer than {tasks} --tasks")
        if wanted == len(found):
            first = written
            found.append(_Interval(str(first), key, key))
        else:
            found[-1] = _Interval(f"{first} to {written}", found[-1].first, key)
    if tasks is not None and len(found) < tasks:
        said = f"the values of column {column!r} fill only {len(found)} tasks"
        raise BadInput(f"{said}; give fewer than {tasks} --tasks")
    return found


# -- times


def number_of(value: Value) -> int | float | None:
    """The number that a value is or spells, such as 9 for "09"; None for other text."""
    if not isinstance(value, str):
        return value
    match = _NUMBER.fullmatch(value.strip())
    if match is None:
        return None
    if not any(match.groups()) and len(match[0]) <= _DIGITS:
        return int(match[0])
    number = float(match[0])
    return number if math.isfinite(number) else None


def iso_time(value: Value) -> str | None:
    """The key of a time in ISO 8601, to the microsecond; None for other text.

    >>> iso_time("2023-10"), iso_time("2023-10-05T01:30+02:00"), iso_time("2023-9")
    ('2023-10-01 00:00:00', '2023-10-04 23:30:00', None)
    """
    text = (kept_text(value) or "").strip()
    if coarse := _COARSE.fullmatch(text):  # which Python does not read
        text += "-01" if coarse[1] else "-01-01"
    try:
        return _key(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _key(found: datetime) -> str:
    return str(found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found)


def time_in(form: str) -> KeyOf:
    """The function that gives the key of a time in a format of `strptime`.

    Raises UsageError if it is not such a format or has no year.
    """
    zone = "" if "%z" in form else " +0000"

    def key_of(value: Value) -> str | None:
        text, signs = f"{kept_text(value)}{zone}", f"{form} %z" if zone else form
        try:
            return _key(datetime.strptime(text, signs).astimezone(UTC))
        except (ValueError, OverflowError):
            return None

    try:
        example = datetime(2023, 10, 5, tzinfo=UTC).strftime(form)
        is_known = any(year in form for year in _YEARS) and key_of(example)
    except (ValueError, re.error):  # strptime does not catch a sign that is there twice
        is_known = None
    if not is_known:
        raise UsageError(f"--time-format {form!r} is not a format with a year, such as %d.%m.%Y")
    return key_of


def unit_of(number: float) -> str | None:
    """The unit in which a number is a time of these years; None for others, such as 9."""
    for unit, scale in _UNITS.items():
        if _EPOCH.start * scale <= number < _EPOCH.stop * scale:
            return unit
    return next((unit for unit, times in _OTHER_UNITS.items() if number in times), None)


def shown(key: Value) -> str:
    """A key for people: without midnight, and seconds since 1970 as a time.

    >>> shown("2023-10-05 00:00:00"), shown(1696464000), shown(9)
    ('2023-10-05', '2023-10-05', '9')
    """
    if not isinstance(key, str):
        scale = _UNITS.get(unit_of(key) or "")
        if scale is None:
            return str(key)
        key = str(datetime.fromtimestamp(key // scale, UTC).replace(tzinfo=None))
    return key.removesuffix(" 00:00:00")
