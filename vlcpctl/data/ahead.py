"""Prefetch the next item of an iterator in a thread while the current one is processed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items in the same order, which must not be None, each fetched one ahead.

    It helps where fetching releases the interpreter lock, as reading and decompressing do. An
    error while fetching is raised when its item is due.

    >>> list(one_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
