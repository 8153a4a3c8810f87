"""Items of multi-modal retrieval: image-text pairs with their classes.

An item is an image with its first caption. Shapes: N samples, P distinct pairs, Q queries, G
gallery rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.evaluation.search.index import AnyVectors, Ids, QueryAndGallery, Vectors


@dataclass(frozen=True)
class Items:
    """The samples of a split, and the distinct pairs among them: identical ones are fused once."""

    image_ids: list[str]  # sha256, of each pair
    texts: list[str]  # of each pair
    first_row_P: Ids  # the first sample with the pair
    pair_of_N: Ids
    classes: list[str]  # of each sample


@dataclass(frozen=True)
class FusedFeatures:
    """A split embedded by one model: unit-length fused features of its distinct pairs."""

    items: Items
    fused_PD: AnyVectors


def lay_out_items(sha256s: Iterable[str], captions: Iterable[str], classes: Sequence[str]) -> Items:
    """The items of samples, given their images' hashes, their first captions and their classes.

    >>> items = lay_out_items(["a", "b", "a"], ["cat", "cat", "cat"], ["x", "x", "y"])
    >>> items.texts, items.first_row_P.tolist(), items.pair_of_N.tolist()
    (['cat', 'cat'], [0, 1], [0, 1, 0])
    """
    pairs = list(zip(sha256s, captions, strict=True))
    number_of: dict[tuple[str, str], int] = {}
    pair_of = [number_of.setdefault(pair, len(number_of)) for pair in pairs]
    images, texts = [image for image, _ in number_of], [text for _, text in number_of]
    first_rows = np.unique(pair_of, return_index=True)[1]
    return Items(images, texts, _ids(first_rows), _ids(pair_of), list(classes))


@dataclass(frozen=True)
class ClassSearch:
    """Queries and a gallery with their classes, and the gallery row of each query itself."""

    sides: QueryAndGallery
    class_Q: Ids
    class_G: Ids
    itself_Q: Ids  # a gallery row of the query's class, or -1

    def right_counts(self) -> Ids:
        """(Q,) number of right answers per query, not counting the query itself."""
        sizes = np.bincount(self.class_G, minlength=1 + int(self.class_Q.max(initial=0)))
        counts: Ids = sizes[self.class_Q] - (self.itself_Q >= 0)
        return counts


@dataclass(frozen=True)
class GrowingItems:
    """The search of several parts; that of the first of them is the start of it.

    `query_ends` and `gallery_ends` (N,) are the numbers of rows of the first 1, 2, ... N parts.
    """

    whole: ClassSearch
    query_ends: Ids
    gallery_ends: Ids

    @staticmethod
    def of(search: ClassSearch) -> GrowingItems:
        """A search in one part."""
        return GrowingItems(search, _ids([len(search.class_Q)]), _ids([len(search.class_G)]))

    def first(self, parts: int) -> ClassSearch:
        """The search of the first parts."""
        whole, queries, gallery = (
            self.whole,
            int(self.query_ends[parts - 1]),
            int(self.gallery_ends[parts - 1]),
        )
        itself_Q = whole.itself_Q[:queries]
        return ClassSearch(
            QueryAndGallery(whole.sides.query_QD[:queries], whole.sides.gallery_GD[:gallery]),
            whole.class_Q[:queries],
            whole.class_G[:gallery],
            np.where(itself_Q < gallery, itself_Q, -1),
        )


def merge_items(queries: Sequence[FusedFeatures], gallery: Sequence[FusedFeatures]) -> GrowingItems:
    """Identical items of one class are one entry and one query; it is not its own answer."""
    return _class_search(queries, gallery, _content)


def stack_items(queries: Sequence[FusedFeatures], gallery: Sequence[FusedFeatures]) -> GrowingItems:
    """Every sample is an entry and a query; its copies are answers, it is not."""
    return _class_search(queries, gallery, lambda part, row: (id(part), row))


GATHER_ITEMS = {"unite": merge_items, "separate": stack_items}

# Names a sample by its row; equal names are one entry.
_Name = Callable[[FusedFeatures, int], Hashable]


@dataclass(frozen=True)
class _Entries:
    names: dict[Hashable, int]
    vectors: Vectors
    classes: list[str]
    ends: list[int]  # their number after each part


def _class_search(
    queries: Sequence[FusedFeatures], gallery: Sequence[FusedFeatures], name: _Name
) -> GrowingItems:
    held = _entries(gallery, name)
    asked = held if queries is gallery else _entries(queries, name)
    numbers: dict[str, int] = {}
    search = ClassSearch(
        sides=QueryAndGallery(asked.vectors, held.vectors),
        class_Q=_ids([numbers.setdefault(one, len(numbers)) for one in asked.classes]),
        class_G=_ids([numbers.setdefault(one, len(numbers)) for one in held.classes]),
        itself_Q=_ids([held.names.get(one, -1) for one in asked.names]),
    )
    return GrowingItems(search, _ids(asked.ends), _ids(held.ends))


def _entries(parts: Sequence[FusedFeatures], name: _Name) -> _Entries:
    """One entry per name over all parts: the first sample with that name."""
    names: dict[Hashable, int] = {}
    vectors: list[Vectors] = []
    classes: list[str] = []
    ends: list[int] = []
    for part in parts:
        before = len(names)
        rows = range(len(part.items.classes))
        numbers = [names.setdefault(name(part, row), len(names)) for row in rows]
        fresh = np.flatnonzero(_first_times(numbers, before))
        vectors.append(part.fused_PD[part.items.pair_of_N[fresh]])
        classes += [part.items.classes[row] for row in fresh.tolist()]
        ends.append(len(names))
    return _Entries(names, np.concatenate(vectors), classes, ends)


def _first_times(numbers: Sequence[int], known: int) -> NDArray[np.bool_]:
    """Which numbers occur for the first time; those below `known` have occurred before.

    >>> _first_times([2, 0, 3, 2], 2).tolist()
    [True, False, True, False]
    """
    is_first = np.zeros(len(numbers), dtype=bool)
    is_first[np.unique(numbers, return_index=True)[1]] = True
    return is_first & (np.asarray(numbers) >= known)


def _content(part: FusedFeatures, row: int) -> Hashable:
    """The content of an item: its image, its text and its class."""
    pair = part.items.pair_of_N[row]
    return part.items.image_ids[pair], part.items.texts[pair], part.items.classes[row]


def _ids(values: object) -> Ids:
    return np.asarray(values, dtype=np.int64)
