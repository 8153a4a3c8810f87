"""Which keys were there before, however many: a table on disk behind a cache of fixed size."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CACHE_KIB = 65536
_KEYS_PER_STATEMENT = 500  # below the oldest limit on parameters, 999
_SETTINGS = f"""
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -{_CACHE_KIB};
"""


@contextmanager
def scratch_table(path: Path, columns: str) -> Iterator[sqlite3.Connection]:
    """A table `scratch` that lives as long as the block; a full disk is an OSError here too."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.executescript(_SETTINGS)
        database.execute(f"CREATE TABLE scratch ({columns}) WITHOUT ROWID")
        database.execute("BEGIN")
        yield database
    except sqlite3.OperationalError as error:
        raise OSError(errno.EIO, f"{error} (while keys were counted)", os.fspath(path)) from error
    finally:
        database.close()
        path.unlink(missing_ok=True)


class Seen:
    """Remembers keys in a scratch table of one column."""

    COLUMNS = "key BLOB PRIMARY KEY"

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def new(self, keys: list[bytes]) -> set[bytes]:
        """Those of the keys that were never given before; all of them are remembered."""
        fresh: set[bytes] = set()
        for start in range(0, len(keys), _KEYS_PER_STATEMENT):
            part = keys[start : start + _KEYS_PER_STATEMENT]
            marks = ",".join(["(?)"] * len(part))
            statement = f"INSERT OR IGNORE INTO scratch VALUES {marks} RETURNING key"  # noqa: S608 - question marks
            fresh.update(key for (key,) in self._database.execute(statement, part))
        return fresh
