"""Which task a pair belongs to: one for all, by column, by source, at random, by class or by time.

The rules by class and by time scan the data once before they can assign pairs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.core.seeds import generator
from vlcpctl.core.words import shortened
from vlcpctl.data.splitting.scratch_tables import scratch_table
from vlcpctl.data.splitting.times import (
    KeyOf,
    Value,
    iso_time,
    number_of,
    shown,
    time_in,
    unit_of,
)
from vlcpctl.data.tasks.samples import Pair, UnusablePair
from vlcpctl.files.inputs import MOST_TASKS

_Time = tuple[Value, Value, int]  # its key, how it is written, and the pairs with it
TaskOf = Callable[[str, Pair], str]

KINDS = {
    "all": "all:NAME",
    "column": "column:NAME",
    "iid": "iid",
    "classes": "classes",
    "source": "source",
    "time": "time:COLUMN",
}
_GROUPS_AT_ONCE = 1024

MAX_CLASSES = 100_000
NO_CLASSES = "(too many for classes; choose another column with --label-column)"
_ADD = """
INSERT INTO scratch VALUES (?, ?)
ON CONFLICT (value) DO UPDATE SET pairs = pairs + excluded.pairs
"""
_TIMES = """
CREATE TABLE times AS
SELECT key_of(value) AS time, min(value) AS value, sum(pairs) AS pairs FROM scratch GROUP BY time
"""


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


class Rule(Protocol):
    """A rule that is ready to assign pairs to tasks."""

    @property
    def names(self) -> list[str]:
        """The tasks in order; empty if the tasks follow in order of first appearance."""

    def begin(self) -> TaskOf:
        """Start a pass; returns the function from (source, pair) to the name of the task.

        It must be called for the kept pairs in order, and raises UnusablePair for one without a
        task.
        """


@dataclass(frozen=True)
class AllInOne:
    """A single task for all pairs."""

    names: list[str]

    def begin(self) -> TaskOf:
        """See `Rule`."""
        return lambda _source, _pair: self.names[0]


@dataclass(frozen=True)
class ByColumn:
    """One task per value of a column, in order of first appearance."""

    column: str
    names: list[str]

    def begin(self) -> TaskOf:
        """See `Rule`."""

        def task_of(_source: str, pair: Pair) -> str:
            return str(present(pair.value, self.column))

        return task_of


@dataclass(frozen=True)
class BySource:
    """One task per source, in the order given."""

    names: list[str]

    def begin(self) -> TaskOf:
        """See `Rule`."""
        return lambda source, _pair: source


@dataclass(frozen=True)
class ByTurn:
    """Random tasks of equal size: of T consecutive kept pairs, each of the T tasks gets one."""

    names: list[str]
    seed: int

    def begin(self) -> TaskOf:
        """See `Rule`."""
        turns = self._turns()
        return lambda _source, _pair: self.names[next(turns)]

    def _turns(self) -> Iterator[int]:
        # Drawn for many rounds at once: a call per round would be slow.
        rounds = np.tile(np.arange(len(self.names)), (_GROUPS_AT_ONCE, 1))
        chunk = 0
        while True:
            yield from generator(self.seed, "iid", chunk).permuted(rounds, axis=1).ravel().tolist()
            chunk += 1


@dataclass(frozen=True)
class ByClass:
    """The classes are divided among the tasks; a pair belongs to the task of its class."""

    names: list[str]
    task_of_label: dict[str, int]

    def begin(self) -> TaskOf:
        """See `Rule`."""

        def task_of(_source: str, pair: Pair) -> str:
            return self.names[self.task_of_label[str(present(pair.label, "label"))]]

        return task_of


@dataclass(frozen=True)
class ByTime:
    """One task per interval of a column's times, with the keys of its first and last."""

    names: list[str]
    firsts: list[Value]
    lasts: list[Value]
    column: str
    key_of: KeyOf

    def times(self) -> Iterator[tuple[str, str, str]]:
        """Each task with its first and last time."""
        return zip(self.names, map(shown, self.firsts), map(shown, self.lasts), strict=True)

    def begin(self) -> TaskOf:
        """See `Rule`."""

        def task_of(_source: str, pair: Pair) -> str:
            key = self.key_of(present(pair.value, self.column))
            assert key is not None, "`by_time` has checked all values"
            # Comparable: all are numbers, or all are text.
            return self.names[bisect_right(self.firsts, key) - 1]

        return task_of


def present(value: Value | None, column: str) -> Value:
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


def by_class(batches: Iterable[list[Pair]], tasks: int, seed: int) -> ByClass:
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
    task_of_label = {
        label: place * tasks // len(labels)
        for place, label in zip(order, sorted(labels), strict=True)
    }
    return ByClass(numbered("classes", tasks), task_of_label)


def by_time(
    batches: Iterable[list[Pair]],
    column: str,
    tasks: int | None,
    scratch: Path,
    time_format: str | None = None,
) -> ByTime:
    """Divide the times in a column into consecutive intervals, one per task, and print these.

    If `tasks` is None, every time is a task. Otherwise the tasks are as equal in pairs as possible;
    pairs of the same time always stay together. The values are counted in a file at `scratch`.
    Raises BadInput if they are not times or do not fill the tasks, and UsageError if `tasks` is
    None and there are more than MOST_TASKS times.
    """
    key_of: KeyOf = number_of if time_format is None else time_in(time_format)
    with scratch_table(scratch, "value PRIMARY KEY, pairs INTEGER") as database:
        for batch in batches:
            counts = Counter(pair.value for pair in batch if pair.value is not None)
            if key_of is number_of and None in map(number_of, counts):
                key_of = iso_time
            database.executemany(_ADD, counts.items())
        database.create_function("key_of", 1, key_of, deterministic=True)
        database.execute(_TIMES)
        times, total = database.execute("SELECT count(*), sum(pairs) FROM times").fetchone()
        if not times:
            raise BadInput(f"no pair has a value in column {column!r}")
        if tasks is None and times > MOST_TASKS:
            raise UsageError(
                f"column {column!r} has {times} times, too many for one task each; give --tasks"
            )
        rows = database.execute("SELECT time, value, pairs FROM times ORDER BY time")
        rule = _cut(_checked(rows, column), ByTime([], [], [], column, key_of), tasks, total)
    spans = [f"{first} to {last}" for _, first, last in rule.times()]
    say(f"split: first and last time of each task, in UTC: {some_names(spans)}")
    return rule


def _checked(rows: Iterable[tuple[Value | None, Value, int]], column: str) -> Iterator[_Time]:
    """The times. Raises BadInput for a value that is none, and for numbers of two units."""
    before = None
    for key, value, pairs in rows:
        if key is None:  # these come first
            found = f"{shortened(repr(value))}, which is not a time in ISO 8601"
            raise BadInput(
                f"column {column!r} has {found}; say how its times are written with "
                "--time-format, such as --time-format %d.%m.%Y"
            )
        unit = None if isinstance(key, str) else unit_of(key)
        if before and unit and unit != before:
            found = f"numbers of two units, {before} and {unit} ({value})"
            raise BadInput(f"column {column!r} has {found}; write all its times in one")
        before = unit
        yield key, value, pairs


def _cut(rows: Iterable[_Time], rule: ByTime, tasks: int | None, total: int) -> ByTime:
    """The rule, to which the tasks are added."""
    task, before = -1, 0
    first: Value = 0  # as it is written
    for key, value, pairs in rows:
        # The interval that contains the midpoint of this time's pairs.
        wanted = (
            task + 1 if tasks is None else min(int((before + pairs / 2) * tasks / total), tasks - 1)
        )
        before += pairs
        if wanted > task + 1:
            found = f"value {value!r} of column {rule.column!r} alone fills more than one task"
            raise BadInput(f"{found}; give fewer than {tasks} --tasks")
        if wanted > task:
            first = value
            rule.names.append(str(first))
            rule.firsts.append(key)
            rule.lasts.append(key)
        else:
            rule.names[-1] = f"{first} to {value}"
            rule.lasts[-1] = key
        task = wanted
    if tasks is not None and len(rule.names) < tasks:
        found = f"the values of column {rule.column!r} fill only {len(rule.names)} tasks"
        raise BadInput(f"{found}; give fewer than {tasks} --tasks")
    return rule
