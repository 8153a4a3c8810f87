"""A table on disk for the time of a pass: values of pairs that repeat."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.pairs import MOST_KEPT, too_many
from vlcpctl.data.tasks.samples import KeptValues

_CACHE_KIB = 65536
_COLUMNS = "place BLOB, number INTEGER, value TEXT, PRIMARY KEY (place, number, value)"
_SELECT = "SELECT place, number, value FROM scratch WHERE place = ?"
# The table is temporary: nothing needs to survive a crash.
_SETTINGS = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -{_CACHE_KIB};
"""


@contextmanager
def scratch_table(path: Path, columns: str) -> Iterator[sqlite3.Connection]:
    """A table `scratch` for the duration of the block. Raises OSError if, say, the disk is full."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.executescript(_SETTINGS)
        database.execute(f"CREATE TABLE scratch ({columns}) WITHOUT ROWID")
        database.execute("BEGIN")
        yield database
    except sqlite3.OperationalError as error:
        raise OSError(errno.EIO, f"{error} (in the scratch table)", os.fspath(path)) from error
    finally:
        database.close()
        path.unlink(missing_ok=True)


class RepeatedValues:
    """Values of `columns` kept columns by the place of a pair (its key and split), on disk.

    They are those of pairs that repeat an earlier one, and belong to the sample of the first: a
    deletion request for a value must find a pair if any of its rows had that value.
    """

    def __init__(self, database: sqlite3.Connection, columns: int) -> None:
        self._database, self._columns = database, columns
        self.is_empty = True

    def add(self, place: bytes, kept: KeptValues) -> None:
        """Add the values of a row that repeats the pair at `place`."""
        rows = [(place, number, value) for number, values in enumerate(kept) for value in values]
        self._database.executemany("INSERT OR IGNORE INTO scratch VALUES (?, ?, ?)", rows)
        self.is_empty = self.is_empty and not rows

    def of(self, places: list[bytes]) -> dict[bytes, KeptValues]:
        """The values of those places that have some.

        Raises BadInput for more values in a column than the limit.
        """
        found: dict[bytes, list[list[str]]] = {}
        rows = (row for place in places for row in self._database.execute(_SELECT, (place,)))
        for place, number, value in rows:
            columns = found.setdefault(place, [[] for _ in range(self._columns)])
            columns[number].append(value)
            if len(columns[number]) > MOST_KEPT:
                why = too_many((tuple(columns[number]),))
                raise BadInput(f"the rows that repeat the pair {place[:16].hex()} have {why}")
        return {place: tuple(map(tuple, columns)) for place, columns in found.items()}


@contextmanager
def repeated_values(path: Path, columns: int) -> Iterator[RepeatedValues | None]:
    """Space for the values of repeated pairs during the block; None without kept columns."""
    if not columns:
        yield None
        return
    with scratch_table(path, _COLUMNS) as table:
        yield RepeatedValues(table, columns)
