"""Which task a pair belongs to: by column, by source, at random (iid), by class or by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.seeds import generator
from vlcpctl.data.pairs import Pair
from vlcpctl.data.samples import Unfit

Value = str | int | float
TaskOf = Callable[[str, Pair], str]

KINDS = {
    "column": "column:NAME",
    "iid": "iid",
    "classes": "classes",
    "source": "source",
    "time": "time:COLUMN",
}
_GROUPS_AT_ONCE = 1024


@dataclass(frozen=True)
class By:
    """The value of --by: its kind, and the column for the kinds `column` and `time`."""

    kind: str
    column: str | None

    @classmethod
    def parse(cls, text: str, tasks: int | None) -> By:
        """Parse --by and check --tasks against it. Raises UsageError if they are inconsistent."""
        kind, colon, column = text.partition(":")
        wants_column = kind in ("column", "time")
        if kind not in KINDS:
            raise UsageError(f"--by: {unknown_name('rule', kind, KINDS.values())}")
        if wants_column != bool(column) or (colon and not wants_column):
            raise UsageError(f"--by {text!r}: write it as one of {', '.join(KINDS.values())}")
        if kind in ("iid", "classes") and tasks is None:
            raise UsageError(f"--by {kind} needs --tasks, the number of tasks")
        if kind in ("column", "source") and tasks is not None:
            each = "value of the column" if kind == "column" else "source"
            raise UsageError(f"--tasks has no effect with --by {kind}: each {each} is a task")
        return cls(kind, column or None)


class Rule(Protocol):
    """A rule that is ready to assign pairs to tasks."""

    @property
    def names(self) -> list[str]:
        """The tasks in order; empty if the tasks follow in order of first appearance."""

    def begin(self) -> TaskOf:
        """Start a pass; returns the function from (source, pair) to the name of the task.

        It must be called for the kept pairs in order. It raises Unfit for a pair without a task.
        """


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
class InTurn:
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
    """The value itself. Raises Unfit if it is None or NaN."""
    if value is None or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        raise Unfit("no value", f"no value in column {column!r}")
    return value


def numbered(kind: str, tasks: int) -> list[str]:
    """Names for tasks that are only numbered.

    >>> numbered("part", 2)
    ['part-0', 'part-1']
    """
    width = len(str(tasks - 1))
    return [f"{kind}-{task:0{width}d}" for task in range(tasks)]
