"""Group pairs into batches: small enough for memory, large enough to be cheap per pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vlcpctl.data.pairs import Pair

_BYTES = 8 * 2**20
_PAIRS = 1000


def in_batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """The pairs in batches of at most 1,000 pairs, or of 8 MiB of images (and the last one)."""
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
