"""The values of columns that the index keeps from the sources: those of several rows, united."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow.parquet as pq

from vlcpctl.data.tasks.index import IndexWriter
from vlcpctl.data.tasks.samples import KeptValues

# From keys of a split to further values of those that have some.
MoreValues = Callable[[list[str]], Mapping[str, KeptValues]]
_ROWS_AT_ONCE = 2048


def distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    """The distinct values, sorted, without those that are None.

    >>> distinct(["b", None, "a", "b"])
    ('a', 'b')
    """
    return tuple(sorted({value for value in values if value is not None}))


def united(some: Iterable[Iterable[str]], others: Iterable[Iterable[str]]) -> KeptValues:
    """For each kept column, the distinct values of two rows that became one sample.

    >>> united((("1",), ()), (("1", "2"), ("x",)))
    (('1', '2'), ('x',))
    """
    return tuple(distinct((*values, *more)) for values, more in zip(some, others, strict=True))


def with_more_values(index: IndexWriter, more: MoreValues) -> IndexWriter:
    """Rewrite a closed index with further values in its kept columns; returns the new writer.

    A repeated pair is found after its first row was written, which may be in another task.
    """
    old = index.path.with_suffix(".old")
    index.path.rename(old)
    new = IndexWriter(index.path, index.schema)
    try:
        with pq.ParquetFile(old, pre_buffer=False) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                columns = batch.to_pydict()
                _add(columns, more(columns["key"]), list(index.lacking))
                new.extend(zip(*columns.values(), strict=True))
        new.close()
    except BaseException:
        new.abandon()
        raise
    old.unlink()
    return new


def _add(columns: dict[str, list[Any]], more: Mapping[str, KeptValues], kept: list[str]) -> None:
    for row, key in enumerate(columns["key"]):
        if key in more:
            values = united([columns[name][row] for name in kept], more[key])
            for name, found in zip(kept, values, strict=True):
                columns[name][row] = found
