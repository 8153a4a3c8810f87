"""The kept values of pairs that repeat an earlier one: they belong to the sample of the first.

A deletion request for a value must find a pair if any of its rows had that value.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.limits import Caps
from vlcpctl.data.splitting.seen_keys import scratch_table
from vlcpctl.data.tasks.samples import KeptValues

_COLUMNS = "place BLOB, number INTEGER, value TEXT, PRIMARY KEY (place, number, value)"
_SELECT = "SELECT place, number, value FROM scratch WHERE place = ?"


class RepeatedValues:
    """Values of `columns` kept columns by the place of a pair (its key and split), on disk."""

    def __init__(self, database: sqlite3.Connection, columns: int, caps: Caps) -> None:
        self._database, self._columns, self._caps = database, columns, caps
        self.is_empty = True

    def add(self, place: bytes, kept: KeptValues) -> None:
        """Add the values of a row that repeats the pair at `place`."""
        rows = [(place, number, value) for number, values in enumerate(kept) for value in values]
        self._database.executemany("INSERT OR IGNORE INTO scratch VALUES (?, ?, ?)", rows)
        self.is_empty = self.is_empty and not rows

    def of(self, places: list[bytes]) -> dict[bytes, KeptValues]:
        """The values of those places that have some.

        Raises BadInput for more values in a column than --cap kept-values.
        """
        found: dict[bytes, list[list[str]]] = {}
        rows = (row for place in places for row in self._database.execute(_SELECT, (place,)))
        for place, number, value in rows:
            columns = found.setdefault(place, [[] for _ in range(self._columns)])
            columns[number].append(value)
            if len(columns[number]) > self._caps.kept_values:
                why = self._caps.exceeded_by((tuple(columns[number]),))
                raise BadInput(f"the rows that repeat the pair {place[:16].hex()} have {why}")
        return {place: tuple(map(tuple, columns)) for place, columns in found.items()}


@contextmanager
def repeated_values(path: Path, columns: int, caps: Caps) -> Iterator[RepeatedValues | None]:
    """Space for the values of repeated pairs during the block; None without kept columns."""
    if not columns:
        yield None
        return
    with scratch_table(path, _COLUMNS) as table:
        yield RepeatedValues(table, columns, caps)
