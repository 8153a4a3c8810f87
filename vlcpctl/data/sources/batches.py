"""As many pairs at a time as keep memory small and the cost of each batch too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vlcpctl.data.pairs import Pair

_BYTES = 8 * 2**20
_PAIRS = 1000


def in_batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """The pairs, cut where their images fill a batch."""
    batch: list[Pair] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += len(pair.image or b"")
        if size >= _BYTES or len(batch) >= _PAIRS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
