"""Groups of pairs that match each other's texts: they share an image, or any listed caption.

As negatives of a contrastive loss, members of a group would be pushed away from what describes
them. Shapes: N rows of all splits, T captions of a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import xxhash

from vlcpctl.data.tasks.task import Split

_AT_ONCE = 1 << 16


def pair_groups(splits: Sequence[Split]) -> list[np.ndarray]:
    """The group of each row, (n,) int64 for each split.

    A group is a connected component: its pairs share the bytes of an image or the text of a listed
    caption, directly or through others. Its number is the smallest, over its pairs, of the first 63
    bits of the image's sha256: the same wherever the group consists of the same images.
    """
    starts = np.cumsum([0, *map(len, splits)])
    if not starts[-1]:
        return [np.empty(0, np.int64) for _ in splits]
    images_N = np.concatenate([_images(split) for split in splits])
    rows_N = np.arange(len(images_N), dtype=np.int32)
    links = [_links(images_N, rows_N)]
    # Hashes of 64 bits: among 10**7 captions, two have the same hash with a chance of 10**-5.
    texts = np.concatenate([_texts(split) for split in splits])
    counts_N = np.concatenate([split.caption_counts() for split in splits])
    links.append(_links(texts, np.repeat(rows_N, counts_N)))
    groups_N = _smallest(np.concatenate(links, axis=1), images_N)
    return [groups_N[start:stop] for start, stop in pairwise(starts.tolist())]


def _images(split: Split) -> np.ndarray:
    """(n,) int64, not negative: the first 63 bits of the sha256 of each image."""
    first = np.ascontiguousarray(split.digests()[:, :8]).view(">u8").reshape(-1)
    shifted: np.ndarray = (first >> np.uint64(1)).astype(np.int64)
    return shifted


def _texts(split: Split) -> np.ndarray:
    """(T,) uint64: a hash of every caption, in the order of the rows."""
    ends, text = split.texts()
    digest = xxhash.xxh3_64_intdigest
    # Places as Python integers, which are read faster, but take five times the memory: in parts.
    parts = (ends[at : at + _AT_ONCE + 1].tolist() for at in range(0, len(ends) - 1, _AT_ONCE))
    hashes = (digest(text[start:end]) for part in parts for start, end in pairwise(part))
    return np.fromiter(hashes, np.uint64, len(ends) - 1)


def _links(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(2, E) pairs of rows that have an equal value and so are in one group."""
    # Each row is linked to the next of the same value: fewer links than values.
    order = np.argsort(values)
    values, rows = values[order], rows[order]
    is_same = values[1:] == values[:-1]
    return np.stack([rows[:-1][is_same], rows[1:][is_same]])


def _smallest(links: np.ndarray, values_N: np.ndarray) -> np.ndarray:
    """(N,) the smallest value in the connected component of each row."""
    if not links.shape[1]:
        return values_N
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(values_N)
    edges = coo_array((np.ones(links.shape[1], bool), (links[0], links[1])), shape=(count, count))
    number, component_N = connected_components(edges, directed=False)
    smallest = np.full(number, np.iinfo(np.int64).max)
    np.minimum.at(smallest, component_N, values_N)
    found: np.ndarray = smallest[component_N]
    return found
