"""Which task a pair belongs to: by a column, by its source, in turn, by class or by time."""

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
    """What --by says: a kind, and the column that two of the kinds name."""

    kind: str
    column: str | None

    @classmethod
    def parse(cls, text: str, tasks: int | None) -> By:
        """Read --by and check that --tasks fits it."""
        kind, colon, column = text.partition(":")
        wants_column = kind in ("column", "time")
        if kind not in KINDS:
            raise UsageError(f"--by: {unknown_name('rule', kind, KINDS.values())}")
        if wants_column != bool(column) or (colon and not wants_column):
            raise UsageError(f"--by {text!r}: write it as one of {', '.join(KINDS.values())}")
        if kind in ("iid", "classes") and tasks is None:
            raise UsageError(f"--by {kind} needs --tasks, the number of tasks")
        if kind in ("column", "source") and tasks is not None:
            raise UsageError(
                f"--tasks has no effect with --by {kind}: there is one task per {kind}"
            )
        return cls(kind, column or None)


class Rule(Protocol):
    """A rule that knows everything it needs; without names where the pairs decide the order."""

    @property
    def names(self) -> list[str]:
        """The tasks in order, where the rule knows them before it has seen the pairs."""

    def begin(self) -> TaskOf:
        """Start a pass over the kept pairs: from the source and a pair to the name of its task."""


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
    """Of every so many kept pairs, one to each task, in an order drawn anew for each round."""

    names: list[str]
    seed: int

    def begin(self) -> TaskOf:
        """See `Rule`."""
        turns = self._turns()
        return lambda _source, _pair: self.names[next(turns)]

    def _turns(self) -> Iterator[int]:
        rounds = np.tile(np.arange(len(self.names)), (_GROUPS_AT_ONCE, 1))
        chunk = 0
        while True:
            yield from generator(self.seed, "iid", chunk).permuted(rounds, axis=1).ravel().tolist()
            chunk += 1


@dataclass(frozen=True)
class ByClass:
    """The classes are dealt to the tasks; a pair goes where its class went."""

    names: list[str]
    task_of_label: dict[str, int]

    def begin(self) -> TaskOf:
        """See `Rule`."""

        def task_of(_source: str, pair: Pair) -> str:
            return self.names[self.task_of_label[str(present(pair.label, "label"))]]

        return task_of


@dataclass(frozen=True)
class ByTime:
    """Intervals of a column's values; `firsts` is where each begins."""

    names: list[str]
    firsts: list[Value]
    column: str

    def begin(self) -> TaskOf:
        """See `Rule`."""

        def task_of(_source: str, pair: Pair) -> str:
            # Values of one kind only: `scan_values` has seen them all.
            value = present(pair.value, self.column)
            return self.names[bisect_right(self.firsts, value) - 1]

        return task_of


def present(value: Value | None, column: str) -> Value:
    """The value, or Unfit when the pair has none."""
    if value is None or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        raise Unfit("no value", f"no value in column {column!r}")
    return value


def numbered(kind: str, tasks: int) -> list[str]:
    """Names for tasks that have none of their own.

    >>> numbered("part", 2)
    ['part-0', 'part-1']
    """
    width = len(str(tasks - 1))
    return [f"{kind}-{task:0{width}d}" for task in range(tasks)]
