"""Ranks, best wrong answers and hits against full matrices in float64, with many ties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.search import count
from vlcpctl.evaluation.search.count import (
    BAND,
    by_candidates,
    counted,
    exact_ranks,
    hits,
    outranked,
    product,
    ranks,
)
from vlcpctl.evaluation.search.galleries import (
    DUPLICATES,
    Captioned,
    Classified,
    ClassSearch,
    Distinct,
    Embeddings,
    Search,
    gather,
    gather_classes,
)
from vlcpctl.evaluation.search.vectors import Vectors

TOP, WIDTH = 10, 8
CPU = torch.device("cpu")
SPREADS = [0.5, 1e-2, 2e-3, 1e-3, 1e-4, 0.0]
every_handling = pytest.mark.parametrize("duplicates", DUPLICATES)


@pytest.fixture
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"_TILE": (23, 20), "_CROWD": 4, "_TOGETHER": 7, "_ROWS": 11, "_MEMBERS": 3}
    for name, value in sizes.items():
        monkeypatch.setattr(count, name, value)


def unit(vectors: Any) -> Vectors:
    vectors = np.asarray(vectors)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def searched(query: Any, gallery: Any, answers: list[list[int]]) -> Search:
    pairs = [(number, row) for number, own in enumerate(answers) for row in sorted(own)]
    return Search.of(unit(query), unit(gallery), np.array(pairs, np.int64).reshape(-1, 2))


def crowd(seed: int, spread: float, size: int = 400, dimensions: int = WIDTH) -> Search:
    """Few centres, many copies of each `spread` apart, and one to four right answers a query."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((12, dimensions))[random.integers(0, 12, size)]
    gallery = centres + spread * random.standard_normal((size, dimensions))
    gallery[random.integers(0, size, size // 8)] = gallery[0]
    answers = [
        random.choice(size, random.integers(1, min(5, size + 1)), replace=False).tolist()
        for _ in range(90)
    ]
    asked = [gallery[own[0]] for own in answers] + spread * random.standard_normal((90, dimensions))
    return searched(asked, gallery, answers)


def by_definition(search: Search) -> Iterator[tuple[int, int, float | None, int]]:
    """Wrong answers above the best right one, at worst and at best; the best one, and its rank."""
    scores = search.query_QD.astype(float) @ search.gallery_GD.astype(float).T
    for query, row in enumerate(scores):
        is_right = np.isin(np.arange(len(row)), search.right_A2[search.right_A2[:, 0] == query, 1])
        right, wrong = row[is_right], row[~is_right]
        worst, best = (int(np.sum(wrong >= right.max() + band)) for band in (-BAND, BAND))
        most = wrong.max() if len(wrong) else None
        rank = -1 if most is None else 1 + int(np.sum(right - BAND > most))
        yield worst, best, most, max(rank, 2) if worst == 0 and most is not None else rank


def check(search: Search, top: int = TOP) -> None:
    """What each way to search finds is what the definition says."""
    wanted = list(by_definition(search))
    worst, best, wrong, wrong_rank = (one[0] for one in exact_ranks(search, "cpu"))
    scores = search.query_QD.astype(float) @ search.gallery_GD.astype(float).T
    for query, (at_worst, at_best, score, rank) in enumerate(wanted):
        assert (worst[query], best[query]) == (at_worst, at_best)
        assert (wrong[query] < 0) == (score is None)
        if score is not None:
            assert abs(scores[query, wrong[query]] - score) <= 2e-9
        assert wrong_rank[query] == (1 if at_worst else rank)
    for find in (counted, by_candidates):
        assert np.array_equal(find(search, CPU, top), np.minimum([[worst], [best]], top)), find


@pytest.mark.parametrize("spread", SPREADS)
def test_ranks_are_those_of_the_full_matrix(spread: float) -> None:
    for seed in range(3):
        check(crowd(seed, spread))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.floats(-6, 0), st.integers(1, 12))
def test_ranks_in_small_galleries(seed: int, size: int, scale: float, top: int) -> None:
    check(crowd(seed, 10**scale, size, dimensions=3), top)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("spread", SPREADS)
def test_tiles_change_nothing(spread: float) -> None:
    check(crowd(5, spread))


@pytest.mark.parametrize("step", [0.0, BAND, 2 * BAND])
def test_copies_a_band_apart_are_counted_exactly(step: float) -> None:
    """A score may be near one edge of the band, or both sides of neither."""
    for seed in range(8):
        random = np.random.default_rng(seed)
        centres = unit(random.standard_normal((6, 16)))[random.integers(0, 6, 150)]
        aside = random.standard_normal(centres.shape)
        aside = unit(aside - np.sum(aside * centres, axis=1, keepdims=True) * centres)
        angles = np.arccos(1 - random.integers(0, 4, 150) * step * random.normal(1, 1e-3, 150))
        gallery = centres * np.cos(angles)[:, None] + aside * np.sin(angles)[:, None]
        check(searched(centres[:75], gallery, [[row, row + 75] for row in range(75)]))


@pytest.mark.usefixtures("_small_tiles")
def test_a_tie_is_never_a_hit_and_of_equal_wrong_answers_the_first_is_named() -> None:
    near = searched(np.eye(2), [[1, 0], [1, 0], [0, 1], [1, 3e-3]], [[0], [2]])
    assert np.array_equal(ranks(near, "cpu", TOP), [[[2, 0]], [[0, 0]]])  # row 3 is 4.5e-6 away
    gallery = [[0, 1], [1, 0], [1, 0], [1, 0], [1, 1]]
    worst, _, wrong, wrong_rank = exact_ranks(searched(np.eye(2), gallery, [[3], [0, 4]]), "cpu")
    assert (worst.tolist(), wrong.tolist(), wrong_rank.tolist()) == ([[2, 0]], [[1, 1]], [[1, 3]])
    *_, wrong, _ = exact_ranks(searched([[1, 0]], [[0, 1], *[[1, 0]] * 60], [[60]]), "cpu")
    assert wrong.tolist() == [[1]]


def test_a_collapsed_model_hits_nothing() -> None:
    same = np.ones((300, 16))
    found = ranks(searched(same, same, [[row] for row in range(300)]), "cpu", TOP)
    assert [set(one[0].tolist()) for one in found] == [{TOP}, {0}]
    one, classes = unit(same), np.arange(300) // 100
    both = ClassSearch.of(one, one, classes, classes, np.arange(300))
    worst, best = hits(both, "cpu", TOP, range(300))
    assert not worst.any()
    assert best.all()


def test_without_wrong_answers_or_queries_there_are_no_ranks() -> None:
    *_, wrong, wrong_rank = exact_ranks(searched(np.eye(2), np.eye(2), [[0, 1], [1]]), "cpu")
    assert (wrong.tolist(), wrong_rank.tolist()) == ([[-1, 0]], [[-1, 2]])
    nothing = searched(np.empty((0, 2)), np.eye(2), [])
    assert [one.shape for one in exact_ranks(nothing, "cpu")] == [(1, 0)] * 4


def test_what_the_candidates_leave_open_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # 40 rivals so near the edge that float32 cannot tell on which side they are.
    angles = np.arccos(1 - BAND - 1e-6 * np.linspace(-1, 1, 40))
    gallery = [[1, 0], *np.stack([np.cos(angles), np.sin(angles)], axis=1)]
    search, asked = searched(np.eye(2), gallery, [[0], [*range(1, 41)]]), []
    monkeypatch.setattr(
        count, "counted", lambda some, *how: (asked.append(len(some)), counted(some, *how))[1]
    )
    found = by_candidates(search, CPU, 30)
    assert asked == [1]
    assert np.array_equal(found, counted(search, CPU, 30))


def pairs_in_parts(
    seed: int, parts: int, size: int, *, is_tied: bool
) -> list[tuple[Captioned, Embeddings]]:
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
        part = Captioned.of(rows.tolist(), captions)
        vectors = texts[[int(name) for name in part.texts.names]]
        found.append((part, Embeddings(images[part.images.names], vectors)))
    return found


def tied(vectors: np.ndarray) -> Vectors:
    """Of few different directions, so that many scores are equal."""
    return unit(np.round(vectors * 2) + 1e-3)


def ways(parts: list[tuple[Captioned, Embeddings]], duplicates: str) -> dict[str, Search]:
    gallery = gather([part for part, _ in parts], duplicates)
    vectors = gallery.vectors([one for _, one in parts])
    return gallery.searches(vectors, vectors)


@every_handling
@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize(
    ("seed", "parts", "size"),
    [(0, 1, 40), (1, 4, 60), pytest.param(2, 12, 9, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("is_tied", [False, True])
def test_ranks_of_the_first_parts_are_those_of_their_own_search(
    duplicates: str, seed: int, parts: int, size: int, is_tied: bool
) -> None:
    tasks = pairs_in_parts(seed, parts, size, is_tied=is_tied)
    for way, whole in ways(tasks, duplicates).items():
        found = [*counted(whole, CPU, TOP), *exact_ranks(whole, "cpu")]
        every = np.arange(len(whole))
        halves = [whole.of_rows(some) for some in (every[::2], every[1::2])]
        for number in range(1, parts + 1):
            own = ways(tasks[:number], duplicates)[way]
            asked, last = whole.asked(number), own.asked(number)
            wanted = [*counted(own, CPU, TOP), *exact_ranks(own, "cpu")]
            for one, other in zip(found, wanted, strict=True):
                assert np.array_equal(one[number - 1, asked], other[number - 1, last])
            some = [half.asked(number) * 2 + odd for odd, half in enumerate(halves)]
            assert np.array_equal(np.sort(np.concatenate(some)), asked)
        if parts == 1:
            assert np.array_equal(by_candidates(whole, CPU, TOP), found[:2])


def test_all_prefixes_cost_one_search_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, sizes = pairs_in_parts(5, 40, 60, is_tied=False), []
    monkeypatch.setattr(
        count, "product", lambda *sides: (sizes.append([*map(len, sides)]), product(*sides))[1]
    )
    both = ways(tasks, "separate")
    for search in both.values():
        exact_ranks(search, "cpu")
    cost = sum(queries * rows for queries, rows in sizes)
    assert cost == sum(len(one) * len(one.gallery_GD) for one in both.values())


def classes_in_parts(
    seed: int, parts: int, *, is_tied: bool, is_own: bool
) -> list[tuple[Classified, Vectors]]:
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
        items = Classified(Distinct.of(rows.tolist()), [str(row % classes) for row in rows])
        found.append((items, vectors[items.pairs.names]))
    return found


@every_handling
@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize(
    ("seed", "parts"), [(0, 1), (1, 4), pytest.param(2, 9, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("has_two", [False, True])
def test_hits_of_the_first_parts_are_those_of_their_own_search(
    duplicates: str, seed: int, parts: int, is_tied: bool, is_own: bool, has_two: bool
) -> None:
    queries = classes_in_parts(seed, parts, is_tied=is_tied, is_own=is_own)
    gallery = classes_in_parts(seed + 9, parts, is_tied=is_tied, is_own=is_own)
    whole = gather_classes(queries, gallery if has_two else queries, duplicates)
    found = hits(whole, "cpu", TOP, range(len(whole.class_Q)))
    for number in range(1, parts + 1):
        some = queries[:number]
        own = gather_classes(some, gallery[:number] if has_two else some, duplicates)
        size = len(own.class_Q)
        wanted = hits(own, "cpu", TOP, range(size))
        assert np.array_equal(found[:, number - 1, :size], wanted[:, -1])


def class_crowd(seed: int, spread: float, *, size: int = 300, inside: bool = True) -> ClassSearch:
    """Few centres, many copies of each `spread` apart, classes of 1 to 60 that cut across them."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((9, 8))[random.integers(0, 9, size)]
    gallery = unit(centres + spread * random.standard_normal((size, 8)))
    gallery[random.integers(0, size, size // 8)] = gallery[0]
    classes = np.minimum(random.geometric(0.15, size), 20)
    rows = random.permutation(size)[:60]
    if inside:
        return ClassSearch.of(gallery[rows], gallery, classes[rows], classes, rows)
    asked = unit(gallery[:60] + spread * random.standard_normal(gallery[:60].shape))
    outside = np.full(len(asked), -1)
    return ClassSearch.of(asked, gallery, random.integers(1, 25, len(asked)), classes, outside)


def lists_by_definition(search: ClassSearch, top: int, band: float) -> list[list[bool]]:
    """Wrong answers that score a right one plus `band` rank before it."""
    scores = search.query_QD.astype(float) @ search.gallery_GD.astype(float).T
    found = []
    for row, name, itself in zip(scores, search.class_Q, search.itself_Q, strict=True):
        others = [(score, place) for place, score in enumerate(row) if place != itself]
        right = sorted((s for s, place in others if search.class_G[place] == name), reverse=True)
        wrong = [s for s, place in others if search.class_G[place] != name]
        line = [False] * top
        for number, score in enumerate(right):
            place = number + sum(one >= score + band for one in wrong)
            if place < top:
                line[place] = True
        found.append(line)
    return found


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("spread", SPREADS)
def test_hits_are_those_of_the_full_matrix(spread: float, *, inside: bool) -> None:
    for seed, top in ((0, TOP), (1, 3)):
        search = class_crowd(seed, spread, inside=inside)
        for found, band in zip(hits(search, "cpu", top, range(60)), (-BAND, BAND), strict=True):
            assert found[0].tolist() == lists_by_definition(search, top, band)
        assert np.array_equal(
            hits(search, "cpu", top, range(7, 20)), hits(search, "cpu", top, range(60))[:, :, 7:20]
        )


def test_a_tie_puts_the_wrong_item_first_and_the_query_is_in_no_place() -> None:
    gallery = unit([[1, 0], [1, 0], [1, 3e-3], [1, 0.5], [1, 1.0]])
    search = ClassSearch.of(
        gallery[:1], gallery, np.array([7]), np.array([7, 8, 7, 7, 8]), np.zeros(1)
    )
    worst, best = hits(search, "cpu", 4, range(1))
    assert worst.tolist() == [[[False, True, True, False]]]  # row 2 is 4.5e-6 below row 1
    assert best.tolist() == [[[True, False, True, False]]]
    alone = ClassSearch.of(gallery[:1], gallery, np.array([9]), np.zeros(5, int), np.array([-1]))
    assert not hits(alone, "cpu", 4, range(1)).any()


def test_training_in_tf32_does_not_make_scores_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, arithmetic, matmul = [], torch.backends.cuda.matmul, torch.Tensor.__matmul__

    def watched(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        seen.append(arithmetic.allow_tf32)
        return matmul(one, other)

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    there = torch.ones(2, 3, device="meta")
    arithmetic.allow_tf32 = True
    try:
        assert product(there, there).shape == (2, 2)
        assert (seen, arithmetic.allow_tf32) == ([False], True)
    finally:
        arithmetic.allow_tf32 = False


@pytest.mark.gpu
@pytest.mark.parametrize("spread", [0.5, 2e-3, 0.0])
def test_a_gpu_counts_as_the_cpu(spread: float) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    search, items = crowd(1, spread, size=5000), class_crowd(1, spread, size=3000)
    wanted = counted(search, CPU, TOP)
    for found in (ranks(search, "cuda", TOP), counted(search, torch.device("cuda"), TOP)):
        assert np.array_equal(found, wanted)
    for here, there in zip(exact_ranks(search, "cuda"), exact_ranks(search, "cpu"), strict=True):
        assert np.array_equal(here, there)
    assert np.array_equal(hits(items, "cuda", TOP, range(60)), hits(items, "cpu", TOP, range(60)))


def test_counts_may_end_where_they_no_longer_matter() -> None:
    search = crowd(0, 0.5)
    best = np.full((90, 1), -np.inf)  # no query has a right answer
    found = outranked(search, best, lambda *_: None, CPU, TOP)
    assert not found.counts.any()
    best[::2] = -1  # every other one has
    found = outranked(search, best, lambda *_: None, CPU, TOP)
    assert found.counts[:, 0, ::2].all()
    assert not found.counts[:, 0, 1::2].any()
