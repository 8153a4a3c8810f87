"""Galleries that grow part by part: each prefix gives what a search of that prefix gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import Tensor

from vlcpctl.evaluation.retrieval.cross_modal import result, search
from vlcpctl.evaluation.search import hits, scan
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import GATHER, GATHER_GROWING, Embeddings, lay_out
from vlcpctl.evaluation.search.hits import HitSearch
from vlcpctl.evaluation.search.index import Vectors
from vlcpctl.evaluation.search.items import (
    GATHER_ITEMS,
    FusedFeatures,
    GrowingItems,
    lay_out_items,
)
from vlcpctl.evaluation.search.queries import both_ways, growing_ways

TOP = 10
WIDTH = 8

every_backend = pytest.mark.parametrize("backend", ["faiss", "torch"])
every_handling = pytest.mark.parametrize("duplicates", ["unite", "separate"])


def unit(vectors: np.ndarray) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def tied(vectors: np.ndarray) -> Vectors:
    """Of few different directions, so that many scores are equal."""
    return unit(np.round(vectors * 2) + 1e-3)


def pairs_in_parts(seed: int, parts: int, size: int, *, is_tied: bool) -> list[Embeddings]:
    """Parts that share images and texts, and pair what earlier parts had apart."""
    random = np.random.default_rng(seed)
    images = unit(random.standard_normal((parts * size // 3 + 2, WIDTH)))
    near = images[np.arange(2 * len(images)) // 2]
    texts = unit(near + 0.4 * random.standard_normal(near.shape))
    if is_tied:
        images, texts = tied(images), tied(texts)
    found = []
    for _ in range(parts):
        rows = random.integers(0, len(images), random.integers(1, size))
        captions = [
            [str((2 * row + one) % len(texts)) for one in random.integers(0, 4, 1 + row % 3)]
            for row in rows.tolist()
        ]
        layout = lay_out([str(row) for row in rows], captions)
        vectors = (
            rows_of[[int(name) for name in names]]
            for rows_of, names in ((images, layout.image_ids), (texts, layout.texts))
        )
        found.append(Embeddings(layout, *vectors))
    return found


def test_some_of_the_queries_are_asked_when_they_are_among_all() -> None:
    growing = growing_ways(GATHER_GROWING["unite"](pairs_in_parts(3, 4, 12, is_tied=False)))
    for queries in growing.values():
        rows = np.arange(1, len(queries), 2)
        some = queries.at(rows)
        assert np.array_equal(some.ends, queries.ends)
        for parts in range(1, 5):
            wanted = np.intersect1d(rows, queries.asked(parts))
            assert np.array_equal(rows[some.asked(parts)], wanted)


def items_in_parts(seed: int, parts: int, *, is_tied: bool, is_own: bool) -> list[FusedFeatures]:
    """Parts that share items; each has classes of its own, or all share theirs."""
    random = np.random.default_rng(seed)
    classes, pool = 3 * parts, 12 * parts
    centres = random.standard_normal((classes, WIDTH))[np.arange(pool) % classes]
    vectors = unit(centres + random.standard_normal((pool, WIDTH)))
    vectors = tied(vectors) if is_tied else vectors
    found = []
    for part in range(parts):
        rows = random.integers(0, pool, random.integers(1, 40))
        if is_own:
            rows = rows - rows % classes + 3 * part + rows % 3
        names = [str(row) for row in rows]
        items = lay_out_items(names, names, [str(row % classes) for row in rows.tolist()])
        found.append(FusedFeatures(items, vectors[[int(name) for name in items.image_ids]]))
    return found


@every_backend
@every_handling
@pytest.mark.parametrize(("seed", "parts", "size"), [(0, 1, 40), (1, 4, 60), (2, 12, 9)])
@pytest.mark.parametrize("is_tied", [False, True])
def test_ranks_of_each_prefix_are_those_of_its_own_search(
    backend: str,
    duplicates: str,
    seed: int,
    parts: int,
    size: int,
    is_tied: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "_COLUMNS", 20)
    monkeypatch.setattr(scan, "_SCORES", 20 * 23)
    tasks, open_with = pairs_in_parts(seed, parts, size, is_tied=is_tied), choose(backend, "cpu")
    whole = growing_ways(GATHER_GROWING[duplicates](tasks))
    for is_exact in (False, True):
        found = search(whole, open_with, is_exact=is_exact)
        for number in range(1, parts + 1):
            own = both_ways(GATHER[duplicates](tasks[:number]))
            wanted = search(own, open_with, is_exact=is_exact)
            assert result(found, number) == result(wanted)
            for way, one in wanted.items():
                assert same(found[way].ranks(number), one.ranks())
                assert not is_exact or same(found[way].exact(number), one.exact())


def same(one: Any, other: Any) -> bool:
    """Whether two dataclasses of arrays are equal."""
    return all(np.array_equal(vars(one)[name], vars(other)[name]) for name in vars(one))


@every_handling
def test_growing_galleries_start_with_those_of_fewer_parts(duplicates: str) -> None:
    tasks = pairs_in_parts(3, 4, 30, is_tied=False)
    found = GATHER_GROWING[duplicates](tasks)
    for number in range(1, 5):
        wanted, here = GATHER[duplicates](tasks[:number]), found.first(number)
        assert np.array_equal(here.image_ID, wanted.image_ID)
        assert np.array_equal(here.text_TD, wanted.text_TD)
        assert np.array_equal(here.pairs_P2, wanted.pairs_P2)


@every_backend
@every_handling
@pytest.mark.parametrize(("seed", "parts"), [(0, 1), (1, 4), (2, 9)])
@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("has_two", [False, True])
def test_hits_of_each_prefix_are_those_of_its_own_search(
    backend: str,
    duplicates: str,
    seed: int,
    parts: int,
    is_tied: bool,
    is_own: bool,
    has_two: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hits, "_BLOCK_ROWS", 23)
    monkeypatch.setattr(hits, "_SCAN_COLUMNS", 20)
    queries = items_in_parts(seed, parts, is_tied=is_tied, is_own=is_own)
    gallery = items_in_parts(seed + 9, parts, is_tied=is_tied, is_own=is_own)
    gallery = gallery if has_two else queries
    open_with = choose(backend, "cpu")
    found = HitSearch.of(GATHER_ITEMS[duplicates](queries, gallery), open_with, TOP)
    for number in range(1, parts + 1):
        some = queries[:number]
        sides = GATHER_ITEMS[duplicates](some, gallery[:number] if has_two else some).whole
        assert same(
            found.first(number), HitSearch.of(GrowingItems.of(sides), open_with, TOP).first()
        )


def test_all_prefixes_cost_about_one_search_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = pairs_in_parts(5, 40, 60, is_tied=False)
    gallery = GATHER_GROWING["separate"](tasks)
    computed = 0
    product = scan.product

    def counted(queries: Tensor, gallery: Tensor) -> Tensor:
        nonlocal computed
        computed += len(queries) * len(gallery)
        return product(queries, gallery)

    monkeypatch.setattr(scan, "product", counted)
    search(growing_ways(gallery), choose("faiss", "cpu"), is_exact=True)
    # Forty searches, one for each prefix, would compute fourteen times as many.
    assert computed == 2 * len(gallery.whole.image_ID) * len(gallery.whole.text_TD)
