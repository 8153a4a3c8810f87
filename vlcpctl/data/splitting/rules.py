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

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.limits import MOST_TASKS
from vlcpctl.core.seeds import generator
from vlcpctl.data.splitting.scratch_tables import scratch_table
from vlcpctl.data.tasks.samples import Pair, UnusablePair

Value = str | int | float
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
    """One task per interval of a column's values; `firsts` has the first value of each."""

    names: list[str]
    firsts: list[Value]
    column: str

    def begin(self) -> TaskOf:
        """See `Rule`."""

        def task_of(_source: str, pair: Pair) -> str:
            # Comparable: `by_time` has checked that all are numbers or all are text.
            value = present(pair.value, self.column)
            return self.names[bisect_right(self.firsts, value) - 1]

        return task_of


def present(value: Value | None, column: str) -> Value:
    """The value itself. Raises UnusablePair if it is None or NaN."""
    if value is None or value != value:  # noqa: PLR0124 - NaN alone differs from itself
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


def by_time(batches: Iterable[list[Pair]], column: str, tasks: int | None, scratch: Path) -> ByTime:
    """Divide the values of a column into consecutive intervals, one per task.

    If `tasks` is None, every value is a task. Otherwise the tasks are as equal in pairs as
    possible; pairs with the same value always stay together. The values are counted in a file at
    `scratch`. Raises BadInput if the values cannot be ordered or do not fill the tasks, and
    UsageError if `tasks` is None and there are more than MOST_TASKS values.
    """
    with scratch_table(scratch, "value PRIMARY KEY, pairs INTEGER") as database:
        kinds: set[bool] = set()
        for batch in batches:
            counts = Counter(
                pair.value for pair in batch if pair.value is not None and pair.value == pair.value
            )
            kinds.update(isinstance(value, str) for value in counts)
            if len(kinds) > 1:
                raise BadInput(
                    f"column {column!r} has both text and numbers, which cannot be ordered"
                )
            database.executemany(_ADD, counts.items())
        values, total = database.execute("SELECT count(*), sum(pairs) FROM scratch").fetchone()
        if not values:
            raise BadInput(f"no pair has a value in column {column!r}")
        if tasks is None and values > MOST_TASKS:
            raise UsageError(
                f"column {column!r} has {values} values, too many for one task each; give --tasks"
            )
        rows = database.execute("SELECT value, pairs FROM scratch ORDER BY value")
        return _cut(rows, column, tasks, total)


def _cut(rows: Iterable[tuple[Value, int]], column: str, tasks: int | None, total: int) -> ByTime:
    firsts: list[Value] = []
    lasts: list[Value] = []
    task, before = -1, 0
    for value, pairs in rows:
        # The interval that contains the midpoint of this value's pairs.
        wanted = (
            task + 1 if tasks is None else min(int((before + pairs / 2) * tasks / total), tasks - 1)
        )
        before += pairs
        if wanted > task + 1:
            found = f"value {value!r} of column {column!r} alone fills more than one task"
            raise BadInput(f"{found}; give fewer than {tasks} --tasks")
        if wanted > task:
            firsts.append(value)
            lasts.append(value)
        lasts[-1] = value
        task = wanted
    if tasks is not None and len(firsts) < tasks:
        found = f"the values of column {column!r} fill only {len(firsts)} tasks"
        raise BadInput(f"{found}; give fewer than {tasks} --tasks")
    names = [
        str(first) if first == last else f"{first} to {last}"
        for first, last in zip(firsts, lasts, strict=True)
    ]
    return ByTime(names, firsts, column)
